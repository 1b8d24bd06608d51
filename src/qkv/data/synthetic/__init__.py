"""Data sources that make their examples, so that recipes run anywhere."""
