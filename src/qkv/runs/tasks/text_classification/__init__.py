"""Text classification."""

from . import metric, task  # noqa: F401  (each registers what it defines)
