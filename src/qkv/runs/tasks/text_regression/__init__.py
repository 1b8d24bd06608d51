"""Text regression: a number for a text."""
