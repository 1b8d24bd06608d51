"""Denoising: span corruption (T5) and text infilling (BART): tasks, objectives and metric."""

from . import metric, objective, task  # noqa: F401  (each registers what it defines)
