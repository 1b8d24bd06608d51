"""Token classification: a tag for each word."""

from . import metric, predict, task  # noqa: F401  (each registers what it defines)
