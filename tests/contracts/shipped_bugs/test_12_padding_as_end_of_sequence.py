"""Bug 12 of those that others shipped: padding as end of sequence."""

from __future__ import annotations

import torch
from letters import Letters
from small import (
    model,
)

from qkv.core.batch import IGNORE
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.synthetic.copy_reverse_sort import Reverse
from qkv.generation import generate


def test_bug_12_padding_written_as_end_of_sequence_is_still_padding_only() -> None:
    """pad = eos: the end of a sequence is learned and attended to, padding is neither; there is one BOS."""

    class Both(Letters):
        pad_id = 2

    batching = Batching(tokens=256, max_length=16, pool=64)
    with stream(Reverse(train=64), Both(), batching, seq2seq=True, seed=1, epochs=1) as batches:
        for made in batches:
            assert made.labels is not None
            real, target = made.inputs["target_layout"].valid, made.inputs["target"]
            assert torch.equal(made.labels != IGNORE, real.expand_as(made.labels))
            ends = [row[row != IGNORE].tolist() for row in made.labels]
            assert all(row[-1] == 2 and row.count(2) == 1 for row in ends)
            assert bool(((target == 1) & real).sum(1).eq(1).all())
            assert bool((target[:, 0] == 1).all())


def test_bug_12_an_end_of_sequence_inside_a_prompt_is_a_token() -> None:
    """Generation takes its padding from the layout: eos = pad in a prompt is attended to as any other token."""
    built, prompt = model("decoder", head={"kind": "language-model", "tied": False}), [4, 2, 5, 2]
    single = generate(built, [prompt], eos_id=2, max_new_tokens=6).best[0]
    together = generate(built, [prompt, [6, 7, 8, 9, 10, 11, 12]], eos_id=2, max_new_tokens=6).best[0]
    assert together == single
    tokens = list(prompt)
    while len(tokens) < 10 and tokens[4:][-1:] != [2]:
        tokens.append(int(built(torch.tensor([tokens]))[0, -1].argmax()))
    assert single == tokens[4:]
