"""ONNX graphs of mixtures of experts: only the chosen experts multiply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_loop import continued, nothing, run, session
from onnx_models import (
    DECODERS,
    PROMPTS,
    built,
)

from qkv.generation import generate
from qkv.generation.sampling import Temperature, TopK, Uniforms, draw, row_seed
from qkv.runs.export import onnx
from qkv.runs.inference.run import Run


@pytest.mark.slow
def test_mixture_from_the_command_line(tmp_path: Path) -> None:
    """Greedy and sampled tokens, and logits of padded rows."""
    from qkv.cli import main

    model = built(*DECODERS["mixture"], n_layers=1)
    folder = Run(model, None, task="continue").save(tmp_path / "run", to="qkv")
    assert main(["convert", str(folder), str(tmp_path / "out"), "--to", "onnx"]) == 0
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=12).sequences]
    assert continued(tmp_path / "out", PROMPTS, 12) == wanted
    seeds = [row_seed(3, i) for i in range(len(PROMPTS))]
    options: dict[str, Any] = {"temperature": 0.8, "top_k": 20, "max_new_tokens": 12}
    wanted = [row[0] for row in generate(model, PROMPTS, seeds=seeds, **options).sequences]
    uniforms = Uniforms([row_seed(seed, 0) for seed in seeds], torch.device("cpu"))

    def choose(logits: Any) -> Any:
        chosen = Temperature(0.8)(torch.empty(0), torch.from_numpy(logits))
        return draw(TopK(20)(torch.empty(0), chosen), uniforms.draw()).numpy()

    assert continued(tmp_path / "out", PROMPTS, 12, choose) == wanted
    ids, mask = torch.tensor([PROMPTS[0], [0, 0, 0, 5, 9]]), torch.tensor([[1] * 5, [0, 0, 0, 1, 1]])
    graph = session(tmp_path / "out")
    feed = {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    past = {one.name: nothing(2, one) for one in graph.get_inputs()[3:]}
    got = run(graph, {name: x.numpy() for name, x in feed.items()} | past)["logits"]
    wanted_logits = model(ids, attention_mask=mask).detach().numpy()
    real = mask.numpy().astype(bool)
    np.testing.assert_allclose(got[real], wanted_logits[real], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_mixture_multiplies_the_tokens_of_each_expert_only(tmp_path: Path) -> None:
    """An expert that no token chooses leaves no trace, even if its weights are no numbers: 0 · NaN would be seen."""
    model = built(*DECODERS["mixture: sigmoids, a bias, a shared layer with a gate"])
    for block in model.decoder.blocks:
        with torch.no_grad():
            block.feedforward.router.bias[3] = -100
            block.feedforward.up.weight[3] = float("nan")
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=5).sequences]
    assert continued(tmp_path / "out", PROMPTS, 5) == wanted
