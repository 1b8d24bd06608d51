"""Prefix language modeling (T5 §3.2.3): task, objective and metric."""

from . import metric, task  # noqa: F401  (each registers what it defines)
