"""Captioning: a sentence about a picture."""

from . import metric, task  # noqa: F401  (each registers what it defines)
