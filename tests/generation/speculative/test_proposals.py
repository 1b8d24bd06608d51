"""Proposals of tokens, row by row."""

from __future__ import annotations

import torch

from qkv.generation.speculative.proposals import Proposals
from qkv.generation.speculative.rows import Continuation
from qkv.generation.speculative.verification import Randomness, verify


def test_rows_may_have_fewer_proposals() -> None:
    p = torch.tensor([0.0, 1.0, 0.0])
    q = torch.tensor([0.0, 1.0, 0.0]).double()
    rows = [Continuation(i, (), 9) for i in range(3)]
    proposals = Proposals([[1, 1], [1], []], q.expand(3, 2, -1))
    results = verify(p.log().expand(3, 3, -1), proposals, rows, Randomness([1, 2, 3], torch.device("cpu")))
    assert [(result.tokens, result.accepted) for result in results] == [([1, 1, 1], 2), ([1, 1], 1), ([1], 0)]
