"""A model divided over the axes of a mesh: which parameters a rank has a part of, and what can't be divided."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import qkv
from qkv.core.ranks import Ranks
from qkv.training.parallel.mesh import Mesh
from qkv.training.parallel.model_parallel.model import divided
from qkv.training.parallel.scale import Scale

pytestmark = pytest.mark.xdist_group("ranks")
SIZES: dict[str, Any] = {"n_layers": 2, "d_model": 16, "n_heads": 4, "vocab_size": 30, "max_positions": 32}


def parts(ranks: Ranks, sizes: dict[str, int]) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[str, int]], int]:
    """The shapes of a rank's parameters, where those are divided, and how many are on its stage alone."""
    model, scale = qkv.build(qkv.preset("gpt2", **SIZES), seed=0), Scale.from_dict(sizes)
    division = divided(model, Mesh(ranks, scale.sizes(ranks.size), torch.device("cpu")), scale)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return shapes, {name: (part.axis, part.dim) for name, part in division.parts.items()}, len(division.homes)


def test_heads_and_neurons_are_divided_by_tensor_parallelism(two: Any) -> None:
    for shapes, axes, homes in two.run(parts, {"tensor": 2}):
        assert shapes["decoder.blocks.0.attention.q.weight"] == (8, 16)
        assert shapes["decoder.blocks.1.attention.out.weight"] == (16, 8)
        assert axes["decoder.blocks.0.attention.q.weight"] == ("tensor", 0)
        assert axes["decoder.blocks.0.feedforward.down.weight"] == ("tensor", 1)
        assert "decoder.blocks.0.norm.attention.weight" not in axes and homes == 0


def test_tokens_are_divided_without_dividing_parameters(two: Any) -> None:
    whole = {name: tuple(p.shape) for name, p in qkv.build(qkv.preset("gpt2", **SIZES)).named_parameters()}
    assert all((shapes, axes, homes) == (whole, {}, 0) for shapes, axes, homes in two.run(parts, {"context": 2}))


def test_layers_are_divided_by_pipelines(two: Any) -> None:
    assert all(not axes and homes > 0 for _, axes, homes in two.run(parts, {"pipeline": 2}))


def refusal(ranks: Ranks, sizes: dict[str, int]) -> str:
    try:
        parts(ranks, sizes)
    except ValueError as error:
        return str(error)
    return ""


def test_a_model_without_experts_has_none_to_divide(two: Any) -> None:
    assert all("expert" in said for said in two.run(refusal, {"expert": 2}))
