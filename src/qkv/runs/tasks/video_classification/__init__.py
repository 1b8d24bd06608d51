"""Video classification."""

from . import task  # noqa: F401  (each registers what it defines)
