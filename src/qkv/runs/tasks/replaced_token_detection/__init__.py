"""Replaced-token detection (ELECTRA): task, objective and metric."""

from . import metric, objective, task  # noqa: F401  (each registers what it defines)
