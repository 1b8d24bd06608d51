"""Prune a run: measure its heads, neurons and layers, remove some, fine-tune the rest, and report."""

from .prune_run import prune
from .result import PruningResult

__all__ = ["PruningResult", "prune"]
