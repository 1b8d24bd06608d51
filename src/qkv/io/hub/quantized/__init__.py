"""Quantized weights in files: compressed-tensors', bitsandbytes', GPTQ's and AWQ's layouts, one a file."""

from .config import layout_of, quantization_of
from .weights import CodedWeights, QuantizedWeights, by_rows, matrices_of

__all__ = ["CodedWeights", "QuantizedWeights", "by_rows", "layout_of", "matrices_of", "quantization_of"]
