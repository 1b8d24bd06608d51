"""Metrics: what they are called, how they are computed, and which way is better."""
