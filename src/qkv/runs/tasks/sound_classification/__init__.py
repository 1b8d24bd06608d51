"""Sound classification."""
