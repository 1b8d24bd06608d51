"""Costs of generating with a recurrent model: FLOPs counted by PyTorch, and the bytes that a real cache keeps."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import qkv
from qkv.nn.cost.recurrent.decoding import kept_bytes, source, token

SMALL = {"vocab_size": 60, "d_e": 12, "d_h": 16, "d_s": 16}
CONTEXTS = [
    "final-state",
    "fixed-context",
    "bahdanau",
    "luong",
    {"kind": "luong", "feeding": False},
    {"kind": "luong", "alignment": "monotonic"},
    {"kind": "luong", "alignment": "location"},
]


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_what_is_kept_has_the_bytes_of_a_real_cache(context: object, cell: str) -> None:
    spec = qkv.preset("rnnsearch", **SMALL, cell=cell, context=context)
    cache = qkv.build(spec).eval().start(source=torch.randint(1, 60, (3, 9)))
    assert cache.nbytes == 3 * kept_bytes(spec, 9, "fp32")


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_a_token_has_the_flops_that_pytorch_counts(context: object) -> None:
    """PyTorch counts neither recurrent kernels nor vᵀ tanh(…) of the additive score, so tokens after two sources differ by
    attention alone."""
    spec = qkv.preset("rnnsearch", **SMALL, cell="rnn", context=context)
    short, long = token(spec, 9), token(spec, 20)
    model = qkv.build(spec).eval().requires_grad_(False)

    def counted(length: int) -> int:
        cache = model.start(source=torch.randint(1, 60, (1, length)))
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model.step(torch.tensor([[5]]), cache)
        return counter.get_total_flops()

    additive = 11 * 2 * 32 if context == "bahdanau" else 0
    assert long.flops - short.flops == counted(20) - counted(9) + additive


def test_a_token_reads_every_matrix_of_the_decoder_once() -> None:
    spec = qkv.preset("rnnsearch", **SMALL)
    names = {name: p for name, p in qkv.build(spec).named_parameters() if p.ndim > 1}
    used = [p.numel() for name, p in names.items() if name.startswith(("decoder.layers", "decoder.readout", "head"))]
    query = 16 * 1  # the vector v of the additive score counts as a product with each key
    without = token(spec, 0, precision="fp32").bytes // 4 - spec.context.kept(spec.widths).row
    scores = sum(p.numel() for name, p in names.items() if "align" in name)
    assert sum(used) < without <= sum(used) + scores + query


def test_rows_share_weights_but_not_what_they_read_of_the_source() -> None:
    spec = qkv.preset("rnnsearch", **SMALL)
    one, many = token(spec, 30), token(spec, 30, rows=8)
    assert many.flops == 8 * one.flops and one.bytes < many.bytes < 8 * one.bytes


def test_reading_a_source_reads_the_recurrent_matrices_at_each_step() -> None:
    spec = qkv.preset("rnnsearch", **SMALL)
    matrix = 3 * 16 * 16 * 2 * 2  # gates, both directions, bytes
    assert source(spec, 11).bytes - source(spec, 10).bytes == matrix
    assert source(spec, 10).flops == spec.cost(0, 10).flops
