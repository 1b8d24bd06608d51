"""How far the outputs of quantized weights are from those of the original."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from small_recipes import RECIPES, SMALL

import qkv
from qkv.lab.quantize import quantize
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


def test_an_embedder_is_compared_by_its_metric_and_its_embeddings(tmp_path: Path):
    name, settings = RECIPES["similarity"]
    train(Recipe.load(name, [*SMALL, *settings]), tmp_path / "run", device="cpu")
    result = quantize(tmp_path / "run", tmp_path / "small", weights="int4", group_size=8, device="cpu")
    before, after = result.metrics["before"], result.metrics["after"]
    assert before["cosine"] == pytest.approx(1) and after["lowest cosine"] <= after["cosine"] < 1
    texts = list(islice(Recipe.load(tmp_path / "run").data.texts("test"), 64))
    vectors = [run.embed(texts) for run in (qkv.load(tmp_path / "run", "cpu"), qkv.load(tmp_path / "small", "cpu"))]
    cosines = [float(torch.cosine_similarity(*pair, dim=0)) for pair in zip(*vectors, strict=True)]
    assert after["cosine"] == pytest.approx(sum(cosines) / len(cosines), abs=1e-5)
    assert before.keys() - {"cosine", "lowest cosine"}  # the recipe's own metrics
