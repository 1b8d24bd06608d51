"""Position schemes: absolute, rotary (RoPE) with its scalings, and relative biases."""

from . import absolute, bias, rotary, tempered, xpos  # noqa: F401  # registers every kind
