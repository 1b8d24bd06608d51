"""Heads: what stands on top of a stack of blocks."""
