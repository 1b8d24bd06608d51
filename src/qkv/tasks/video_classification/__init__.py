"""Video classification."""
