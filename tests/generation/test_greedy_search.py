"""Greedy decoding and what it shares with sampling: rows that finish, stop, stream, and are scored."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from qkv.core.layout import Layout
from qkv.generation import generate


def greedy_alone(model, prompt: list[int], new: int, eos: int | None = None) -> list[int]:
    """The definition: the whole sequence through the model for every token."""
    ids = list(prompt)
    with torch.inference_mode():
        model.eval()
        while len(ids) < len(prompt) + new:
            logits = model(torch.tensor([ids]), layout=Layout.full(len(ids)))[0, -1]
            ids.append(int(logits.argmax()))
            if ids[-1] == eos:
                break
    return ids[len(prompt) :]


PROMPTS = [[4, 5, 6, 7, 8], [9], [10, 11, 12], [1, 2]]


@pytest.mark.parametrize("eos", [None, 6])
def test_greedy_is_the_likeliest_token_each_time(tiny, eos) -> None:
    model = tiny()
    out = generate(model, PROMPTS, max_new_tokens=12, eos_id=eos)
    assert out.best == [greedy_alone(model, prompt, 12, eos) for prompt in PROMPTS]
    assert out.prompts == tuple(map(tuple, PROMPTS))
    assert out.full() == [[p + n] for p, n in zip(PROMPTS, out.best, strict=True)]


@pytest.mark.parametrize("side", ["left", "right", "mixed"])
def test_padding_on_any_side_changes_nothing(tiny, side) -> None:
    model = tiny()
    expected = generate(model, PROMPTS, max_new_tokens=8).best
    ids = torch.full((4, 6), 21)
    mask = torch.zeros(4, 6, dtype=torch.bool)
    for i, prompt in enumerate(PROMPTS):
        where = {"left": range(6 - len(prompt), 6), "right": range(len(prompt)), "mixed": [0, 2, 3, 4, 5]}[side]
        where = list(where)[: len(prompt)]
        ids[i, where], mask[i, where] = torch.tensor(prompt), True
    assert generate(model, ids, attention_mask=mask, max_new_tokens=8).best == expected
    assert generate(model, ids, layout=Layout.from_mask(mask), max_new_tokens=8).best == expected


def test_padding_may_hold_anything(tiny) -> None:
    model = tiny()
    ids = torch.tensor([[-100, 999, 4], [5, 6, 7]])
    mask = torch.tensor([[0, 0, 1], [1, 1, 1]])
    assert (
        generate(model, ids, attention_mask=mask, max_new_tokens=5).best
        == generate(model, [[4], [5, 6, 7]], max_new_tokens=5).best
    )


def test_pad_that_is_eos_mutes_nothing(table) -> None:
    """Prompts hold the eos token, as text and as padding; the row continues until eos is generated."""
    model = table(9, seed=5)
    ids = torch.tensor([[2, 2, 5, 2, 4], [3, 2, 5, 2, 4]])
    alone = generate(model, [[5, 2, 4]], eos_id=2, max_new_tokens=15).best[0]
    out = generate(model, ids, attention_mask=torch.tensor([[0, 0, 1, 1, 1], [1] * 5]), eos_id=2, max_new_tokens=15)
    assert out.best == [alone, alone]
    assert len(alone) > 1


def test_finished_rows_leave_the_batch(fixed) -> None:
    # token t is followed by t − 1; 0 ends: row i finishes after as many steps as its prompt says
    rows = [[1.0 if j == max(i - 1, 0) else 0.0 for j in range(6)] for i in range(6)]
    model = fixed(rows)
    out = generate(model, [[5], [2], [3], [2]], eos_id=0, max_new_tokens=10)
    assert out.best == [[4, 3, 2, 1, 0], [1, 0], [2, 1, 0], [1, 0]]
    assert out.reasons == [["eos"]] * 4
    assert model.rows_fed == [4, 4, 2, 1, 1]


def test_several_eos_tokens(fixed) -> None:
    model = fixed([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]])
    assert generate(model, [[0], [1]], eos_id=[1, 3]).best == [[1], [2, 3]]


def test_stop_ends_a_row(fixed) -> None:
    model = fixed([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    out = generate(model, [[0], [2]], stop=lambda tokens: tokens[-2:] == [1, 2], max_new_tokens=9)
    assert out.best == [[1, 2], [0, 1, 2]]
    assert out.reasons == [["stop"], ["stop"]]


def test_stream_tells_every_token_as_it_comes(tiny) -> None:
    model, said = tiny(), []
    out = generate(
        model, PROMPTS, num_samples=2, seed=0, eos_id=6, max_new_tokens=9, stream=lambda r, t: said.append((r, t))
    )
    flat = [tokens for row in out.sequences for tokens in row]
    assert [[t for r, t in said if r == row] for row in range(8)] == flat
    assert [r for r, _ in said[:8]] == list(range(8))


def test_min_new_tokens(table) -> None:
    model = table(6, seed=1)
    free = [generate(model, [[p]], eos_id=2, max_new_tokens=20).best[0] for p in range(6)]
    assert min(map(len, free)) < 5
    held = generate(model, [[p] for p in range(6)], eos_id=2, min_new_tokens=5, max_new_tokens=20).best
    assert min(map(len, held)) >= 5


def test_repetition_rules_see_only_their_row(tiny) -> None:
    model = tiny()
    options = {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "max_new_tokens": 14}
    together = generate(model, PROMPTS, **options).best
    assert together == [generate(model, [p], **options).best[0] for p in PROMPTS]
    for prompt, new in zip(PROMPTS, together, strict=True):
        whole = prompt + new
        bigrams = list(itertools.pairwise(whole))
        assert len(bigrams) == len(set(bigrams))


def test_a_row_with_nothing_left_to_say_ends(fixed) -> None:
    model = fixed([[0.5, 0.3, 0.2]] * 3)
    for options in ({}, {"num_beams": 2}, {"do_sample": True, "seed": 0}):
        out = generate(model, [[0]], no_repeat_ngram_size=1, max_new_tokens=9, **options)
        assert sorted(out.best[0]) == [1, 2]
        assert out.reasons[0] == ["stuck"]


def test_scores_are_the_models_own_log_probabilities(tiny) -> None:
    model = tiny().eval()
    for options in ({}, {"temperature": 0.7, "top_k": 5, "seed": 3}, {"num_beams": 3, "no_repeat_ngram_size": 2}):
        out = generate(model, PROMPTS, max_new_tokens=6, scores=True, length_penalty=0.5, **options)
        assert out.log_probs is not None and out.scores is not None
        for prompt, new, given, total in zip(PROMPTS, out.best, out.log_probs, out.scores, strict=True):
            whole = torch.tensor([prompt + new])
            with torch.inference_mode():
                log_probs = model(whole, layout=Layout.full(whole.shape[1])).log_softmax(-1)[0]
            expected = [float(log_probs[len(prompt) - 1 + i, t]) for i, t in enumerate(new)]
            assert given[0] == pytest.approx(expected, abs=1e-5)
            assert total[0] == pytest.approx(sum(expected) / len(new) ** 0.5, abs=1e-5)


def test_scores_are_left_out_unless_asked_for(table) -> None:
    out = generate(table(7), [[1]], max_new_tokens=3)
    assert out.scores is None and out.log_probs is None
    beams = generate(table(7), [[1]], max_new_tokens=3, num_beams=2)
    assert beams.scores is not None and beams.log_probs is None


def test_dropout_is_off_and_modes_are_restored(tiny) -> None:
    model = tiny()
    expected = generate(model.eval(), PROMPTS, max_new_tokens=10).best
    model.train()
    frozen = torch.nn.Dropout(0.1).eval()
    model.add_module("frozen", frozen)
    assert generate(model, PROMPTS, max_new_tokens=10).best == expected
    assert model.training and model.dropout.training and not frozen.training
    with pytest.raises(ZeroDivisionError):
        generate(model, PROMPTS, stop=lambda tokens: bool(1 / 0))
    assert model.dropout.training


def test_own_processors_come_in(table) -> None:
    def only_odd(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        even = torch.arange(logits.shape[1]) % 2 == 0
        return logits.masked_fill(even, -math.inf)

    for options in ({}, {"num_beams": 3}, {"temperature": 2.0, "seed": 1}):
        tokens = generate(table(12), [[4], [6]], processors=[only_odd], max_new_tokens=8, **options).best
        assert all(token % 2 for row in tokens for token in row)
