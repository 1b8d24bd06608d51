"""Image classification."""

from . import metric, picture, task  # noqa: F401  (each registers what it defines)
