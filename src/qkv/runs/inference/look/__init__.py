"""Look into trained models: what a run reads for an input, the figure of its attention, and the live page."""

from .comparing import WordComparison, compare
from .figure import INDUCTION, Figure, look, recorded_attention

__all__ = ["INDUCTION", "Figure", "WordComparison", "compare", "look", "recorded_attention"]
