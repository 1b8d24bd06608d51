from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.core.batch import IGNORE
from qkv.data.batching.ragged import Ragged
from qkv.runs.tasks.pretraining import corruption

MASK = 3
WORDS = np.arange(10, 40, dtype=np.int32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rows_of(lengths: list[int]) -> Ragged:
    """Rows in which every token is another."""
    return Ragged.runs(np.arange(100, 100 + sum(lengths), dtype=np.int32), lengths)


def lists(rows: Ragged) -> list[list[int]]:
    return [row.tolist() for row in rows]


def per_row(flags: np.ndarray[Any, Any], rows: Ragged) -> list[list[Any]]:
    return [flags[a : a + n].tolist() for a, n in zip(rows.starts, rows.lengths, strict=True)]


LENGTHS = st.lists(st.integers(2, 60), min_size=1, max_size=12)


# -- choosing -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0, 1)), min_size=1, max_size=20), st.integers(0, 99))
def test_so_many_are_chosen_of_each_row(wanted: list[tuple[int, float]], seed: int) -> None:
    lengths = np.array([n for n, _ in wanted])
    counts = np.array([round(share * n) for n, share in wanted])
    found = corruption.chosen(lengths, counts, rng(seed))
    assert [sum(row) for row in per_row(found, rows_of(lengths.tolist()))] == counts.tolist()


def test_every_place_is_chosen_as_often() -> None:
    found = corruption.chosen(np.full(20_000, 5), np.full(20_000, 2), rng()).reshape(-1, 5).mean(0)
    assert np.abs(found - 0.4).max() < 0.02


# -- windows ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 90), min_size=1, max_size=10), st.integers(4, 20), st.booleans(), st.integers(0, 99))
def test_windows_hold_all_of_a_text_and_nothing_else(lengths: list[int], width: int, moved: bool, seed: int) -> None:
    texts = rows_of(lengths)
    cut, owner = corruption.windows(texts, width, rng(seed) if moved else None)
    assert all(2 <= n <= width for n in cut.lengths)
    for i, text in enumerate(texts):
        parts = [cut[k].tolist() for k in np.flatnonzero(owner == i)]
        if len(text) < 2:
            assert not parts
        else:
            assert sorted({token for part in parts for token in part}) == text.tolist()
            assert sum(map(len, parts)) <= len(text) + 1  # but for one that is read twice, to have company
    if not moved:
        assert sum(cut.lengths == width) >= sum(n // width for n in lengths)


# -- masks --------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(LENGTHS, st.integers(0, 999))
def test_fifteen_in_a_hundred_tokens_are_picked_in_every_row(lengths: list[int], seed: int) -> None:
    rows = rows_of(lengths)
    free = np.ones(sum(lengths), bool)
    which = corruption.picked(rows, free, free, 0.15, rng(seed))
    assert [sum(row) for row in per_row(which, rows)] == [max(1, round(0.15 * n)) for n in lengths]


def test_eighty_are_hidden_ten_are_others_and_ten_stay() -> None:
    rows = rows_of([128] * 500)
    free = np.ones(len(rows.flat), bool)
    which = corruption.picked(rows, free, free, 0.15, rng())
    ids = corruption.hidden(rows.flat, which, MASK, WORDS, rng(1))
    labels = corruption.labels_of(rows.flat, which)
    assert (labels[~which] == IGNORE).all() and (ids[~which] == rows.flat[~which]).all()
    assert (labels[which] == rows.flat[which]).all()
    shares = [(ids[which] == MASK).mean(), np.isin(ids[which], WORDS).mean(), (ids[which] == labels[which]).mean()]
    assert np.abs(np.array(shares) - [0.8, 0.1, 0.1]).max() < 0.015
    assert len(np.unique(ids[which])) > 25  # any word


@settings(deadline=None)
@given(LENGTHS, st.integers(0, 999))
def test_whole_units_are_picked_and_what_is_not_free_never(lengths: list[int], seed: int) -> None:
    rows, random = rows_of(lengths), rng(seed)
    free = random.random(sum(lengths)) < 0.9
    begins = (random.random(sum(lengths)) < 0.5) | (corruption._within(rows.lengths) == 0)
    which = corruption.picked(rows, free, begins, 0.3, random)
    assert not (which & ~free).any()
    unit = np.cumsum(begins)
    for number in np.unique(unit):
        of_unit = which[(unit == number) & free]
        assert of_unit.all() or not of_unit.any()
    for got, able in zip(per_row(which, rows), per_row(free, rows), strict=True):
        assert any(got) == any(able)  # something, wherever something can be


def test_words_are_picked_at_the_rate_that_is_asked_for() -> None:
    rows = rows_of([100] * 2000)
    begins = (rng(2).random(len(rows.flat)) < 0.6) | (corruption._within(rows.lengths) == 0)
    which = corruption.picked(rows, np.ones(len(begins), bool), begins, 0.15, rng(3))
    assert abs(which.mean() - 0.15) < 0.002


def test_spans_have_spanberts_lengths() -> None:
    rows = rows_of([20_000])
    begins = corruption.spans(np.ones(20_000, bool), rows, rng())
    lengths = np.diff(np.append(np.flatnonzero(begins), 20_000))
    assert lengths.max() == 10 and abs(lengths.mean() - 3.8) < 0.1  # "a mean span length of 3.8"
    shares = np.bincount(lengths, minlength=11)[1:] / len(lengths)
    law = 0.2 * 0.8 ** np.arange(10)
    assert np.abs(shares - law / law.sum()).max() < 0.02


def test_a_span_is_hidden_in_one_way() -> None:
    rows = rows_of([4000])
    begins = corruption.spans(np.ones(4000, bool), rows, rng())
    which = corruption.picked(rows, np.ones(4000, bool), begins, 0.15, rng(1))
    ids = corruption.hidden(rows.flat, which, MASK, WORDS, rng(2), together=begins)
    unit = np.cumsum(begins)
    for number in np.unique(unit[which]):
        of = unit == number
        ways = {"mask" if i == MASK else "word" if i in WORDS else "same" for i in ids[of].tolist()}
        assert len(ways) == 1


# -- span corruption ----------------------------------------------------------------------------------------------------


def test_the_papers_example() -> None:
    """Raffel et al. 2020, figure 2."""
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
    noise = np.array([word in ("for", "inviting", "last") for word in words])
    names = [*words, "<X>", "<Y>", "<Z>"]
    rows = Ragged.runs(np.arange(len(words), dtype=np.int32), [len(words)])
    inputs, targets = corruption.with_sentinels(rows, noise, np.arange(len(words), len(names), dtype=np.int32))
    said = [" ".join(names[i] for i in part[0]) for part in (inputs, targets)]
    assert said == ["Thank you <X> me to your party <Y> week .", "<X> for inviting <Y> last <Z>"]


@settings(deadline=None)
@given(LENGTHS, st.floats(0.05, 0.9), st.floats(1, 8), st.integers(0, 999))
def test_inputs_and_targets_together_are_the_text(lengths: list[int], rate: float, mean: float, seed: int) -> None:
    rows = rows_of(lengths)
    noise = corruption.noise_spans(rows.lengths, rate, mean, rng(seed))
    sentinels = np.arange(50, dtype=np.int32)
    inputs, targets = corruption.with_sentinels(rows, noise, sentinels)
    for row, read, said in zip(rows, inputs, targets, strict=True):
        spans: dict[int, list[int]] = {}
        for token in said.tolist():
            if token < 50:
                spans[token] = []
            else:
                spans[max(spans)].append(token)
        whole = [one for token in read.tolist() for one in (spans[token] if token < 50 else [token])]
        assert whole == row.tolist()
        assert [t for t in read.tolist() if t < 50] == sorted(t for t in spans if spans[t])


def test_fifteen_in_a_hundred_in_spans_of_three() -> None:
    rows = rows_of([512] * 50)
    noise = corruption.noise_spans(rows.lengths, 0.15, 3.0, rng())
    assert [sum(row) for row in per_row(noise, rows)] == [77] * 50
    inputs, targets = corruption.with_sentinels(rows, noise, np.arange(100, dtype=np.int32))
    assert set(inputs.lengths.tolist()) == {512 - 77 + 26} and set(targets.lengths.tolist()) == {77 + 26}
    assert len({tuple(row) for row in per_row(noise, rows)}) == 50  # each row its own


def test_too_few_sentinels_are_told() -> None:
    rows = rows_of([100])
    noise = corruption.noise_spans(rows.lengths, 0.5, 1.0, rng())
    with pytest.raises(ValueError, match=r"a row has 50 spans to mark and there are 8 sentinels; raise task.sentinels"):
        corruption.with_sentinels(rows, noise, np.arange(8, dtype=np.int32))


# -- denoising ----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(LENGTHS, st.floats(0.05, 0.6), st.integers(0, 999))
def test_infilling_keeps_the_order_and_hides_its_share(lengths: list[int], rate: float, seed: int) -> None:
    rows = rows_of(lengths)
    made = corruption.infilled(rows, rate, 3.0, MASK, rng(seed))
    for row, got in zip(rows, made, strict=True):
        kept = [token for token in got.tolist() if token != MASK]
        assert kept == sorted(set(kept)) and set(kept) <= set(row.tolist())
        assert len(row) - len(kept) == round(rate * len(row))
        assert (MASK in got.tolist()) == (len(kept) < len(row))


def test_infilling_has_spans_of_poissons_lengths() -> None:
    rows = rows_of([1000] * 40)
    made = corruption.infilled(rows, 0.3, 3.0, MASK, rng())
    masks = int((made.flat == MASK).sum())
    assert abs(0.3 * 40_000 / masks - 3.0) < 0.1
    touching = (made.flat[1:] == MASK) & (made.flat[:-1] == MASK)
    assert touching.any()  # an inserted mask, or one span beside another


@settings(deadline=None)
@given(LENGTHS, st.integers(0, 999))
def test_sentences_change_places_as_a_whole(lengths: list[int], seed: int) -> None:
    rows, random = rows_of(lengths), rng(seed)
    begins = corruption.begins_of(rows, random.random(sum(lengths)) < 0.3)
    made = corruption.permuted(rows, begins, random)
    unit = np.cumsum(begins)
    place = {int(token): int(number) for token, number in zip(rows.flat, unit, strict=True)}
    for row, got in zip(lists(rows), lists(made), strict=True):
        assert sorted(got) == row
        runs = [place[t] for i, t in enumerate(got) if i == 0 or place[t] != place[got[i - 1]]]
        assert len(runs) == len(set(runs))
        assert all(b == a + 1 for a, b in pairwise(got) if place[a] == place[b])


def test_every_order_of_sentences_comes() -> None:
    rows = rows_of([3] * 3000)
    made = corruption.permuted(rows, np.ones(9000, bool), rng())
    orders, counts = np.unique(made.flat.reshape(-1, 3) - rows.flat.reshape(-1, 3)[:, :1], axis=0, return_counts=True)
    assert len(orders) == math.factorial(3) and counts.min() > 400


def test_the_same_seed_gives_the_same_corruption() -> None:
    rows = rows_of([50, 60, 70])
    free = np.ones(180, bool)
    for make in (
        lambda r: corruption.picked(rows, free, free, 0.15, r),
        lambda r: corruption.noise_spans(rows.lengths, 0.15, 3.0, r),
        lambda r: corruption.infilled(rows, 0.3, 3.0, MASK, r).flat,
    ):
        assert np.array_equal(make(rng(5)), make(rng(5)))
        assert not np.array_equal(make(rng(5)), make(rng(6)))
