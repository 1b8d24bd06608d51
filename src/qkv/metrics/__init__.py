"""Metrics: how they are computed, what they are called, and whether higher is better."""

from . import text  # noqa: F401  (registers the metrics of texts)
