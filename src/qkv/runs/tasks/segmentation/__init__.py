"""Semantic segmentation: the class of every pixel."""
