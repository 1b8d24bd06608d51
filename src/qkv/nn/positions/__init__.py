"""Position schemes: absolute, rotary (RoPE) with its scalings, and relative biases."""

from . import absolute, axes, bias, rotary, xpos  # noqa: F401  # registers every kind
