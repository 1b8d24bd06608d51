"""Processors at several places of rows with different lengths give what they give in steps of one token."""

from __future__ import annotations

import pytest
import torch

from qkv.generation.logits_processors import apply, processors_for
from qkv.generation.prompts import Prompts, padded
from qkv.generation.result import Hypothesis
from qkv.generation.settings import Generation
from qkv.generation.speculative.rows import Continuation, Processed

VOCAB = 9


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.7, "top_k": 4, "min_p": 0.01},
        {"repetition_penalty": 1.4},
        {"no_repeat_ngram_size": 2, "min_new_tokens": 4, "top_p": 0.9},
    ],
)
def test_processed_as_in_steps(settings: dict) -> None:
    prompts_rows = ((1, 2, 3), (4,))
    ids, layout = padded([[1, 2, 3], [4, 0, 0]])
    ids, layout = torch.tensor([[1, 2, 3], [0, 0, 4]]), type(layout).from_lengths([3, 1], 3, "left")
    prompts = Prompts(ids, layout, prompts_rows, (9, 9))
    chain = processors_for(Generation(**settings), [5], 3)
    rows = [
        Continuation(0, prompts_rows[0], 9, Hypothesis(tokens=[1, 2])),
        Continuation(1, prompts_rows[0], 9, Hypothesis(tokens=[7])),
        Continuation(3, prompts_rows[1], 9, Hypothesis(tokens=[8, 8])),
    ]
    proposed = [[1, 2], [], [4, 3]]
    logits = torch.randn(3, 3, VOCAB)
    processed = Processed(chain, prompts, num_samples=2)
    assert bool(processed) == bool(chain)
    out = processed(rows, proposed, logits)
    for b, row in enumerate(rows):
        for t in range(len(proposed[b]) + 1):
            history = prompts.history()[row.index // 2].tolist()
            seen = torch.tensor([[*history, *row.new, *proposed[b][:t]]])
            assert torch.allclose(out[b, t], apply(chain, seen, logits[b, t][None])[0]), (b, t)
    later = processed(rows, proposed, logits[:, 1:2], first=1)
    assert torch.allclose(later[0], out[0, 1:2]) and torch.allclose(later[2], out[2, 1:2])


def test_the_tokens_of_a_row() -> None:
    row = Continuation(0, (1, 2, 3), 5, Hypothesis(tokens=[4, 5]))
    assert [row.tail(i) for i in range(6)] == [[1, 2, 3, 4, 5], [2, 3, 4, 5], [3, 4, 5], [4, 5], [5], []]
    assert len(row) == 5 and row.left == 3


def test_fewer_tokens_are_proposed_after_a_rejection() -> None:
    row = Continuation(0, (1, 2), 40)
    assert row.most == 39
    for proposed, accepted, most in ((10, 10, 39), (10, 3, 5), (5, 5, 10), (10, 0, 2), (0, 0, 2), (1, 1, 2), (2, 2, 4)):
        row.learn(proposed, accepted)
        assert row.most == most
    row.hypothesis.tokens.extend([0] * 38)
    assert row.most == 1
