"""Speech recognition: the words of a sound."""

from . import attention, ctc, metric, objective, task  # noqa: F401  (each registers what it defines)
