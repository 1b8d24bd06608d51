"""Storage formats of quantized weights, one a file: int8 and int4, nf4, fp8, mxfp4."""

from .base import Format, Packed, format_of
from .fp8 import FP8
from .integer import INT4, INT8
from .mxfp4 import MXFP4
from .nf4 import NF4

__all__ = ["FP8", "INT4", "INT8", "MXFP4", "NF4", "Format", "Packed", "format_of"]
