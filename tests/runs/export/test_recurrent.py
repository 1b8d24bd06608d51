"""ONNX graphs of recurrent models give qkv's tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from onnx_loop import greedy, translated_recurrently

import qkv
from qkv.generation import generate
from qkv.runs.export import onnx
from qkv.runs.inference.run import Run

CONTEXTS: dict[str, dict[str, Any]] = {
    "bahdanau": {"context": {"kind": "bahdanau"}},
    "bahdanau: two layers of LSTM": {"context": {"kind": "bahdanau"}, "cell": "lstm", "decoder_layers": 2},
    "luong": {"context": {"kind": "luong"}, "encoder_layers": 2},
    "luong: plain RNN without feeding": {"context": {"kind": "luong", "feeding": False}, "cell": "rnn"},
    "luong: monotonic": {"context": {"kind": "luong", "alignment": "monotonic", "reach": 2}},
    "luong: predictive": {"context": {"kind": "luong", "alignment": "predictive", "reach": 2}, "cell": "lstm"},
    "luong: location": {"context": {"kind": "luong", "alignment": "location", "longest": 6}},
    "final state": {"context": {"kind": "final-state"}, "cell": "lstm", "directions": 1, "encoder_layers": 2,
                    "decoder_layers": 2, "reverse": True},
    "final state through a bridge": {"context": {"kind": "final-state"}, "decoder_cell": "lstm"},
    "fixed context": {"context": {"kind": "fixed-context"}},
}  # fmt: skip


def recurrent(name: str) -> Any:
    """A recurrent model with weights that are large enough for tokens to differ."""
    spec = qkv.preset("rnnsearch", vocab_size=60, d_e=12, d_h=10, d_s=10)
    model = qkv.build(spec.replace(CONTEXTS[name]), seed=5).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow]) for n in CONTEXTS],
)
def test_recurrent_models(name: str, tmp_path: Path) -> None:
    model = recurrent(name)
    exported = onnx.to_onnx(Run(model, None), tmp_path / "out")
    assert exported.graphs == ("encoder_model", "decoder_model") and exported.error < 1e-4
    source = torch.randint(60, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(source)
    mask[1, 4:], mask[2, :3] = 0, 0
    made = generate(model, source, attention_mask=mask, bos_id=0, max_new_tokens=8).sequences
    wanted = [row[0] for row in made]
    assert len({tuple(row) for row in wanted}) > 1
    assert translated_recurrently(tmp_path / "out", source.numpy(), mask.numpy(), 0, 8, greedy) == wanted
