"""Speech recognition: the words of a sound."""

from . import ctc, metric, objective, task  # noqa: F401  (each registers what it defines)
