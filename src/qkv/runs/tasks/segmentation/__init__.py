"""Semantic segmentation: the class of every pixel."""

from . import metric, predict, task  # noqa: F401  (each registers what it defines)
