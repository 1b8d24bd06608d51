"""The roofline of a training step: FLOPs of `cost.flops`, bytes counted by hand, and what follows for the MFU."""

import pytest

import qkv
from qkv.io.families import presets
from qkv.nn.cost.accelerators import KNOWN, Accelerator
from qkv.nn.cost.flops import BatchShape, training_flops
from qkv.nn.cost.roofline import ADAMW_BYTES, roofline

H100 = KNOWN["h100"]
NAMES = (
    "gpt2",
    "bert-base",
    "transformer-base",
    "llama-3-8b",
    "mixtral-8x7b",
    "t5-small",
    "vit-b-16",
    "longformer-base",
)


@pytest.mark.parametrize("name", [name for name in NAMES if name in presets()])
def test_the_components_have_the_flops_of_a_step(name):
    spec = qkv.preset(name)
    shape = BatchShape(4, 128 if "vit" not in name else 197, 96 if spec.is_encoder_decoder else 0)
    flops = sum(one.work.flops for one in roofline(spec, shape, H100, "bf16", "materialized").components)
    assert flops == pytest.approx(training_flops(spec, shape), rel=0.02)


def test_bytes_of_a_small_model_by_hand():
    spec = qkv.preset("gpt2", vocab_size=50, d_model=8, n_layers=1, n_heads=2, max_positions=16)
    rows, length, d = 2, 16, 8
    tokens, seen = rows * length, rows * length * (length + 1) // 2
    moved = {
        c.name: c.work.bytes for c in roofline(spec, BatchShape(rows, length), H100, "bf16", "materialized").components
    }
    assert moved["attention scores"] == 2 * (3 * 4 * tokens * d + 10 * 2 * seen)
    assert moved["attention projections"] == 2 * 3 * (4 * d * d + 4 * d + tokens * (3 * d + 4 * d))
    assert moved["optimizer"] == ADAMW_BYTES * spec.cost().parameters
    assert moved["loss"] == 4 * 6 * tokens * 50
    tiled = {c.name: c.work.bytes for c in roofline(spec, BatchShape(rows, length), H100, "bf16").components}
    assert tiled["attention scores"] == 2 * 4 * 4 * tokens * d
    assert {name: n for name, n in tiled.items() if name != "attention scores"} == {
        name: n for name, n in moved.items() if name != "attention scores"
    }


def test_materialized_attention_costs_more_the_longer_the_text():
    spec = qkv.preset("gpt2", max_positions=8192)
    ratios = []
    for length in (512, 2048, 8192):
        tiled, whole = (roofline(spec, BatchShape(1, length), H100, "bf16", kind) for kind in ("tiled", "materialized"))
        ratios.append(whole.seconds / tiled.seconds)
    assert ratios[0] < ratios[1] < ratios[2]


def test_mfu_is_one_where_memory_is_free_and_falls_with_bandwidth():
    spec, shape = qkv.preset("gpt2"), BatchShape(8, 512)
    free = Accelerator("free", {"bf16": 1e15}, 1e30, 1e12)
    found = roofline(spec, shape, free, "bf16", "materialized")
    assert found.mfu == pytest.approx(1.0, rel=0.01) and found.waiting == pytest.approx(0.0, abs=1e-6)
    slow = roofline(spec, shape, Accelerator("slow", {"bf16": 1e15}, 1e9, 1e12), "bf16")
    assert slow.mfu < 0.01 and slow.waiting > 0.99
    assert roofline(spec, shape, H100, "bf16").mfu < 0.6
