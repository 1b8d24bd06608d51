"""Tiled attention on CPUs."""
