"""Turns examples into arrays: tokenization, packing, bucketing by length and padding."""
