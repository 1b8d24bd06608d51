"""Quantize the weights of a trained model: which layers, what their inputs are, and their codes."""

from .dequantize import dequantize
from .parts import experts_of
from .quantize import Quantized, blank, quantize
from .select import matrices

__all__ = ["Quantized", "blank", "dequantize", "experts_of", "matrices", "quantize"]
