"""ONNX graphs of mixtures of experts and of layers whose state has a fixed size give qkv's tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_loop import continued, run, session, translated
from onnx_models import (
    DECODERS,
    LINEAR,
    MOE,
    PERFORMER,
    PROMPTS,
    SIZES,
    built,
)

import qkv
from qkv.generation import generate
from qkv.runs.export import onnx
from qkv.runs.inference.run import Run


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.slow
def test_exported_decoders_with_states_generate_the_same_tokens(name: str, tmp_path: Path) -> None:
    model = built(*DECODERS[name])
    assert onnx.to_onnx(Run(model, None), tmp_path / "out").error < 1e-4
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=12).sequences]
    assert continued(tmp_path / "out", PROMPTS, 12) == wanted
    alone = [row[0] for row in generate(model, PROMPTS[:1], max_new_tokens=3).sequences]
    assert continued(tmp_path / "out", PROMPTS[:1], 3) == alone


ENCODERS = {
    "mixture": {"encoder.blocks.*.feedforward": MOE},
    "linear attention": {"encoder.blocks.*.attention": {"kind": "linear-attention", "n_heads": 4}},
    "performer": {"encoder.blocks.*.attention": {**PERFORMER, "pattern": "full"}},
    "convolution": {"encoder.blocks.*.attention": {"kind": "convolution", "kernel": 3}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_exported_encoders_give_the_same_outputs(name: str, tmp_path: Path) -> None:
    spec = qkv.preset("bert-base", **SIZES, d_ff=48, max_positions=32)
    model = qkv.build(spec.replace({**ENCODERS[name], "head": None, "classification_head": None}), seed=5).eval()
    assert onnx.to_onnx(Run(model, None), tmp_path / "out").error < 1e-4
    ids, mask = torch.randint(60, (3, 6)), (torch.arange(6) < torch.tensor([[6], [2], [4]])).long()
    feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.randint(2, (3, 6))}
    (got,) = run(session(tmp_path / "out"), {name: x.numpy() for name, x in feed.items()}).values()
    wanted = model(ids, attention_mask=mask, token_types=feed["token_type_ids"]).detach().numpy()
    real = mask.numpy().astype(bool)
    np.testing.assert_allclose(got[real], wanted[real], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convs2s", "t5-small: mixtures", "t5-small: linear attention"])
def test_exported_encoder_decoders_with_states_generate_the_same_tokens(name: str, tmp_path: Path) -> None:
    preset, _, what = name.partition(": ")
    changes: dict[str, Any] = {}
    if what == "mixtures":
        changes = {"decoder.blocks.*.feedforward": MOE, "encoder.blocks.*.feedforward": MOE}
    if what == "linear attention":
        changes = {"decoder.blocks.*.attention": LINEAR, "decoder.position": "none"}
    sizes = {"d_head": 8, "d_ff": 48} if preset == "t5-small" else {"max_positions": 64}
    spec = qkv.preset(preset, **SIZES, **sizes).replace(changes)  # type: ignore[call-overload]
    model = qkv.build(spec, seed=5).eval()
    assert onnx.to_onnx(Run(model, None), tmp_path / "out").error < 1e-4
    source, mask = torch.randint(60, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    mask[1, 4:] = 0
    made = generate(model, source, attention_mask=mask, bos_id=0, max_new_tokens=8).sequences
    assert translated(tmp_path / "out", source.numpy(), mask.numpy(), 0, 8) == [row[0] for row in made]
