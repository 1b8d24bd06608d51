"""Extractive question answering."""

from . import metric, predict, task  # noqa: F401  (each registers what it defines)
