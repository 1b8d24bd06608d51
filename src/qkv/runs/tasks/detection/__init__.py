"""Object detection: classes and boxes."""

from . import metric, objective, picture, predict, task  # noqa: F401  (each registers what it defines)
