"""Batches: examples tokenized, sorted by length, packed and padded."""
