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
    return {"vocab_size": vocab_size, "d_model": 64, "n_layers": 1, "n_heads": 2, "context": 32, "batch": batch}


def step_flops(shape: Shape) -> int:
    """Products of matrices in forward and backward (3 × forward), causal attention counted by its allowed pairs."""
    d, layers, tokens = shape["d_model"], shape["n_layers"], shape["batch"] * shape["context"]
    dense = 2 * tokens * (12 * layers * d**2 + shape["vocab_size"] * d)
    pairs = tokens * (shape["context"] + 1) // 2
    return 3 * (dense + 4 * layers * d * pairs)


def pairs() -> Shape:
    """A Transformer of the paper's base size on rows of 64 and 64 tokens."""
    sizes = {"vocab_size": 10000, "d_model": 512, "d_ff": 2048, "n_layers": 6, "n_heads": 8}
    return {**sizes, "batch": 32, "source": 64, "target": 64}


def marian(batch: int) -> Shape:
    """The size of the Marian models of OPUS-MT, on sources of 32 tokens."""
    sizes = {"vocab_size": 58101, "d_model": 512, "d_ff": 2048, "n_layers": 6, "n_heads": 8}
    return {**sizes, "batch": batch, "source": 32, "target": 64}


def tiny_pairs() -> Shape:
    """For tests of the harness; the lengths differ, so none is taken for the other."""
    sizes = {"vocab_size": 64, "d_model": 64, "d_ff": 128, "n_layers": 1, "n_heads": 2}
    return {**sizes, "batch": 2, "source": 12, "target": 8}


def recurrent() -> Shape:
    """A recurrent translator of about five million parameters, on rows of 20 and 20 tokens."""
    sizes = {"vocab_size": 4000, "d_e": 256, "d_h": 256, "d_s": 256, "d_a": 256}
    return {**sizes, "batch": 64, "source": 20, "target": 20}


def tiny_recurrent() -> Shape:
    """For tests of the harness."""
    sizes = {"vocab_size": 64, "d_e": 32, "d_h": 32, "d_s": 32, "d_a": 32}
    return {**sizes, "batch": 2, "source": 9, "target": 7}


def pair_flops(shape: Shape) -> int:
    """As `step_flops`, for encoder and decoder."""
    d, layers, source, target = shape["d_model"], shape["n_layers"], shape["source"], shape["target"]
    encoder = source * (4 * d**2 + 2 * d * shape["d_ff"])
    decoder = target * (6 * d**2 + 2 * d * shape["d_ff"]) + source * 2 * d**2  # keys and values of the source
    pairs = source**2 + target * (target + 1) // 2 + target * source
    dense = 2 * (layers * (encoder + decoder) + target * shape["vocab_size"] * d)
    return 3 * shape["batch"] * (dense + 4 * layers * d * pairs)


def n_decoder_parameters(shape: Shape) -> int:
    """As `n_matrix_parameters`, of an encoder–decoder's decoder; the encoder's keys and values are projected once."""
    layer = 6 * shape["d_model"] ** 2 + 2 * shape["d_model"] * shape["d_ff"]
    return shape["n_layers"] * layer + shape["vocab_size"] * shape["d_model"]


def n_matrix_parameters(shape: Shape) -> int:
    """Weights that every decoded token has to read: the layers' matrices and the head."""
    return 12 * shape["n_layers"] * shape["d_model"] ** 2 + shape["vocab_size"] * shape["d_model"]
