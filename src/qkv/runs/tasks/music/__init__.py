"""Music as language."""

from . import metric, picture, predict, task  # noqa: F401  (each registers what it defines)
