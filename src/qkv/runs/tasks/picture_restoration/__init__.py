"""Restoring corrupted pictures and upscaling small ones."""

from . import metric, predict, task  # noqa: F401  (each registers what it defines)
