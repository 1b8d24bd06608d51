"""States of ONNX graphs: names, sizes, and prompts in portions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx_loop import nothing, renamed, run, session
from onnx_models import (
    CONVOLUTION,
    DECODERS,
    FIRST,
    PERFORMER,
    built,
)

from qkv.runs.export import onnx
from qkv.runs.inference.run import Run


@pytest.mark.slow
def test_names_and_sizes_of_states(tmp_path: Path) -> None:
    model = built("gpt2", {FIRST: PERFORMER, "decoder.blocks.1.attention": CONVOLUTION})
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    shapes = {one.name: one.shape[1:] for one in session(tmp_path / "out").get_inputs()[3:]}
    expected = {"0.sums": [4, 16, 9], "0.top": [4], "1.inputs": [2, 32]}
    assert shapes == {f"past_key_values.{name}": sizes for name, sizes in expected.items()}


@pytest.mark.slow
def test_a_prompt_in_portions(tmp_path: Path) -> None:
    """A long prompt may be fed in several passes: the state continues."""
    model = built(*DECODERS["performer"])
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    graph, ids = session(tmp_path / "out"), np.arange(3, 43)[None] % 60
    past, parts = {one.name: nothing(1, one) for one in graph.get_inputs()[3:]}, []
    for begin, end in ((0, 17), (17, 18), (18, 40)):
        feed = {"input_ids": ids[:, begin:end], "attention_mask": np.ones((1, end), np.int64)}
        out = run(graph, {**feed, "position_ids": np.arange(begin, end)[None], **past})
        parts.append(out.pop("logits"))
        past = renamed(out)
    wanted = model(torch.from_numpy(ids)).detach().numpy()
    np.testing.assert_allclose(np.concatenate(parts, 1), wanted, rtol=1e-4, atol=1e-5)
