"""Embeddings: poolings, normalization and arrays. See also `tests/io/directories/test_sentence_transformers.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from qkv.runs.inference.run import Run, load


@pytest.fixture(scope="module")
def run(trained: Path) -> Run:
    return load(trained, device="cpu")


def test_each_pooling_is_its_formula(run: Run) -> None:
    states = run.embed(["a b c"], pooling="none")[0]
    assert states.shape == (4, 16)  # three letters and the end
    weighted = (states * torch.tensor([[1.0], [2.0], [3.0], [4.0]])).sum(0) / 10
    poolings = {"mean": states.mean(0), "cls": states[0], "last": states[-1], "max": states.amax(0)}
    for pooling, wanted in {**poolings, "weighted-mean": weighted, "mean-sqrt": states.sum(0) / 2}.items():
        assert torch.allclose(run.embed(["a b c"], pooling=pooling)[0], wanted, atol=1e-6)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="did you mean 'mean'"):
        run.embed(["a"], pooling="meen")  # type: ignore[arg-type]


def test_a_text_without_tokens_is_an_error(trained_lm: Path) -> None:
    with pytest.raises(ValueError, match="text 2 has no tokens"):
        load(trained_lm, device="cpu").embed(["a", ""])


def test_vectors_are_one_array(run: Run) -> None:
    texts = ["a b c", "d"]
    array = run.embed_array(texts, normalize=True)
    assert array.dtype == np.float32 and array.shape == (2, 16)
    assert np.linalg.norm(array, axis=1) == pytest.approx(1, abs=1e-6)
    assert np.array_equal(array, torch.stack(run.embed(texts, normalize=True)).numpy())
    assert run.embed_array(texts, pooling="none").shape == (6, 16)  # the tokens of all texts
    assert run.embed_array([]).shape == (0, 16)
