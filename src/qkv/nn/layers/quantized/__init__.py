"""Quantized weights of linear layers, embeddings and heads."""

from .matrix import PARTS, QuantizedMatrix, check_not_quantized, dense, put, quantized

__all__ = ["PARTS", "QuantizedMatrix", "check_not_quantized", "dense", "put", "quantized"]
