"""Text regression: a number for a text."""

from . import metric, task  # noqa: F401  (each registers what it defines)
