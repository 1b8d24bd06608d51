"""Position schemes: absolute, rotary (RoPE) with its scalings, and relative biases."""

from . import absolute, axes, bias, rotary, xpos  # noqa: F401  # registers every kind
from .base import Position

Position.kinds.later("tempered-rotary", "qkv.nn.positions.tempered")
