"""Comparisons: one recipe trained in several variants, and what becomes of them, measured alike and drawn together."""
