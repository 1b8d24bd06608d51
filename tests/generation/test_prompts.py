"""Prompts: rows are padded, and grouped by length within a bound."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.core.layout import Layout, Role
from qkv.generation.prompts import length_groups, padded
from qkv.nn.patterns.basic import causal, prefix

LENGTHS = [700, 1, 30, 4000, 9000, 2, 2, 650]


def test_groups_hold_every_row_once_and_stay_within_the_bound() -> None:
    groups = list(length_groups([length + 10 for length in LENGTHS], 4096))
    assert sorted(i for group in groups for i in group) == list(range(len(LENGTHS)))
    for group in groups:
        assert len(group) == 1 or len(group) * (max(LENGTHS[i] for i in group) + 10) <= 4096


def test_rows_that_must_not_be_padded_have_one_length_per_group() -> None:
    groups = list(length_groups(LENGTHS, 4096, padded=False))
    assert sorted(i for group in groups for i in group) == list(range(len(LENGTHS)))
    assert all(len({LENGTHS[i] for i in group}) == 1 for group in groups) and [5, 6] in groups


def test_rows_are_padded_on_the_right() -> None:
    ids, layout = padded([[1, 2, 3], [], [4]])
    assert ids.tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert layout.valid.tolist() == [[True] * 3, [False] * 3, [True, False, False]]
    with pytest.raises(ValueError, match=r"put a single prompt into a list"):
        padded([1, 2])  # type: ignore[list-item]


@torch.no_grad()
def test_a_prefix_language_model_reads_a_prompt_in_both_directions() -> None:
    spec = qkv.preset("llama", vocab_size=11, d_model=16, n_layers=2, n_heads=2, d_ff=24)
    changes = {f"decoder.blocks.{i}.attention.pattern": causal() | prefix() for i in range(2)}
    model = qkv.build(spec.replace(changes)).eval()
    for parameter in model.parameters():
        parameter.mul_(5)
    rows = [[1, 2, 3, 4, 5], [6, 7, 8]]
    made = model.generate(rows, max_new_tokens=3)[:, -3:]
    for row, new in zip(rows, made.tolist(), strict=True):
        ids = list(row)
        for token in new:
            marks = torch.tensor([[int(Role.PREFIX) * (i < len(row)) for i in range(len(ids))]])
            layout = Layout.full(len(ids)).with_roles(marks)
            assert int(model(torch.tensor([ids]), layout=layout)[0, -1].argmax()) == token
            ids.append(token)
    plain = Layout.full(5).with_roles(torch.zeros(1, 5, dtype=torch.int64))
    causally = model.generate(torch.tensor(rows[:1]), layout=plain, max_new_tokens=1)
    assert int(causally[0, -1]) == int(model(torch.tensor(rows[:1]))[0, -1].argmax())
