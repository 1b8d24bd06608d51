"""A run as mteb's encoder: vectors, prompts by the name of the task, and cosines."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from run_untrained import bert
from torch.nn.functional import cosine_similarity

from qkv.nn.models.heads.sequence import SentenceVector
from qkv.runs.leaderboards.embedder import MtebEncoder

TASK = SimpleNamespace(name="STS", type="Similarity")


def test_texts_of_all_batches_are_embedded_in_order() -> None:
    run = bert(SentenceVector())
    found = MtebEncoder(run).encode([{"text": ["a b", "c"]}, {"text": ["d e"]}], task_metadata=TASK)
    np.testing.assert_allclose(found, run.embed_array(["a b", "c", "d e"]), atol=1e-6)


@pytest.mark.parametrize(
    ("prompts", "chosen"),
    [
        (("STS-query", "STS", "query"), "STS-query"),
        (("STS", "Similarity-query", "query"), "STS"),
        (("Similarity", "query"), "Similarity"),
        (("query", "document"), "query"),
        (("document",), None),
    ],
)
def test_the_more_special_prompt_is_used(prompts: tuple[str, ...], chosen: str | None) -> None:
    encoder = MtebEncoder(bert(SentenceVector()))
    encoder.prompts = dict.fromkeys(prompts, "text: ")
    assert encoder._prompt(TASK, SimpleNamespace(value="query")) == chosen


def test_similarities_are_cosines() -> None:
    one, two = torch.randn(2, 3, 4)
    encoder = MtebEncoder(bert(SentenceVector()))
    torch.testing.assert_close(encoder.similarity_pairwise(one, two), cosine_similarity(one, two))
    pairs = cosine_similarity(one[:, None], two[None], dim=-1)
    torch.testing.assert_close(encoder.similarity(one.numpy(), two.numpy()), pairs)
