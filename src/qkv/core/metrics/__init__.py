"""Metrics: their computation, and the title, scale and direction with which they are displayed."""

from . import text  # noqa: F401  (registers the metrics of texts)
