"""Look into trained models: what a run reads for an input, the figure of its attention, and the live page."""

from .comparing import Comparison, compare
from .figure import INDUCTION, Figure, look, recorded_attention

__all__ = ["INDUCTION", "Comparison", "Figure", "compare", "look", "recorded_attention"]
