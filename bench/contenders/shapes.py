"""The models' sizes, as plain values that travel to the contenders."""

from __future__ import annotations

Shape = dict[str, int]


def training(vocab_size: int) -> Shape:
    """Six layers of width 384 over 256 tokens, in batches of 16."""
    return {"vocab_size": vocab_size, "d_model": 384, "n_layers": 6, "n_heads": 6, "context": 256, "batch": 16}


def gpt2(batch: int) -> Shape:
    """GPT-2's smallest, 124 M parameters."""
    return {"vocab_size": 50257, "d_model": 768, "n_layers": 12, "n_heads": 12, "context": 1024, "batch": batch}


def tiny(vocab_size: int = 64, batch: int = 2) -> Shape:
    """For tests of the harness."""
    return {"vocab_size": vocab_size, "d_model": 64, "n_layers": 1, "n_heads": 1, "context": 32, "batch": batch}


def step_flops(shape: Shape) -> int:
    """Products of matrices in forward and backward (3 × forward), causal attention counted by its allowed pairs."""
    d, layers, tokens = shape["d_model"], shape["n_layers"], shape["batch"] * shape["context"]
    dense = 2 * tokens * (12 * layers * d**2 + shape["vocab_size"] * d)
    pairs = tokens * (shape["context"] + 1) // 2
    return 3 * (dense + 4 * layers * d * pairs)


def n_matrix_parameters(shape: Shape) -> int:
    """Weights that every decoded token has to read: the layers' matrices and the head."""
    return 12 * shape["n_layers"] * shape["d_model"] ** 2 + shape["vocab_size"] * shape["d_model"]
