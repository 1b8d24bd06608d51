"""The roofline of recurrent models: FLOPs of a step, bytes counted by hand, and why larger batches help them."""

from __future__ import annotations

import pytest

import qkv
from qkv.nn.cost.accelerators import KNOWN
from qkv.nn.cost.flops import BatchShape, training_flops
from qkv.nn.cost.recurrent.roofline import roofline
from qkv.nn.cost.roofline import ADAMW_BYTES

NAMES = ("rnnsearch", "rnnencdec", "seq2seq", "luong-global", "luong-local-m", "luong-local-p")


@pytest.mark.parametrize("name", NAMES)
def test_the_components_have_the_flops_of_a_step(name: str) -> None:
    spec, shape = qkv.preset(name), BatchShape(4, 30, 20)
    found = roofline(spec, shape, KNOWN["h100"], "bf16")
    assert sum(one.work.flops for one in found.components) == training_flops(spec, shape)


def test_bytes_of_a_small_model_by_hand() -> None:
    spec = qkv.preset("rnnencdec", vocab_size=50, d_e=8, d_h=4, d_s=4, directions=1)
    rows, length, source = 2, 6, 5
    found = roofline(spec, BatchShape(rows, length, source), KNOWN["h100"], "fp32")
    moved = {one.name: one.work.bytes for one in found.components}
    tokens, gates = rows * source, 3 * 4
    inputs = 3 * (gates * 8 + tokens * (8 + gates))
    states = (2 * source + 1) * gates * 4 + 3 * tokens * (4 + gates)
    assert moved["encoder recurrence"] == 4 * (inputs + states + 5 * tokens * gates)
    assert moved["optimizer"] == ADAMW_BYTES * spec.n_parameters
    assert "attention" not in moved


def test_larger_batches_use_more_of_the_device() -> None:
    spec = qkv.preset("rnnencdec")
    shares = [roofline(spec, BatchShape(rows, 30, 30), KNOWN["h100"], "bf16").mfu for rows in (1, 8, 64, 512)]
    assert shares == sorted(shares) and shares[-1] > 10 * shares[0]


def test_attention_of_all_steps_at_once_moves_less() -> None:
    fed, free = (qkv.preset("luong-global", context={"kind": "luong", "feeding": feeding}) for feeding in (True, False))
    moved = [
        {one.name: one.work.bytes for one in roofline(spec, BatchShape(8, 30, 30), KNOWN["h100"], "bf16").components}[
            "attention"
        ]
        for spec in (fed, free)
    ]
    assert moved[0] > 10 * moved[1]
