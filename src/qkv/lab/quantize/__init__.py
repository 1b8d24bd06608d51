"""Quantize a run: its quality before and after, the layers with the worst error, and a report."""

from .quantize_run import quantize
from .result import QuantizedRun

__all__ = ["QuantizedRun", "quantize"]
