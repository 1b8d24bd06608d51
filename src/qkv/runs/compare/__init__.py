"""Comparisons: train variants of a recipe, measure each, and plot them together."""
