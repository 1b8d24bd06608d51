from __future__ import annotations

import numpy as np
import pytest

from qkv.data.any_digits import PLACES, SUMS, AnyDigits, answer_of
from qkv.data.memory import Memory
from qkv.data.synthetic.made_speech import WORDS


def test_questions_are_the_same_in_every_run_and_new_in_every_epoch() -> None:
    source = AnyDigits(train=30)
    first, again, later = (list(source.examples("train", epoch=epoch)) for epoch in (0, 0, 1))
    assert (
        [one["question"] for one in first] == [one["question"] for one in again] != [one["question"] for one in later]
    )
    assert [one["answer"] for one in source.examples("test")] == [
        one["answer"] for one in source.examples("test", epoch=3)
    ]


def test_a_question_has_a_place_for_each_medium_and_the_answer_says_what_is_there() -> None:
    forms = set()
    for one in AnyDigits(train=200).examples("train"):
        terms = one["terms"]
        for form, name in PLACES.items():
            assert one["question"].count(f"<{name}>") == len(one.get(name, ())) == sum(t.form == form for t in terms)
        said = [f"{term.form} {WORDS[term.digit]}" for term in terms]
        total = SUMS[sum(term.digit for term in terms)]
        assert one["answer"] == (said[0] if len(said) == 1 else f"{said[0]} plus {said[1]} is {total}")
        forms |= {tuple(term.form for term in terms)}
    assert len(forms) == 4 + 16
    assert answer_of([("word", 9), ("dialed", 9)]) == "word nine plus dialed nine is eighteen"


def test_a_dialed_digit_has_as_many_pulses_and_ten_for_zero() -> None:
    source = AnyDigits(noise=0.0)
    for digit in range(10):
        series = source.dialed(digit, np.random.default_rng(digit)) > 0.5
        assert int((series[1:] & ~series[:-1]).sum()) == (digit or 10) and series.sum() == 3 * (digit or 10)


def test_other_data_are_refused_in_one_sentence() -> None:
    blank = np.zeros((1, 8, 8), np.uint8)
    pictures = Memory.of([{"image": blank, "label": f"{i % 3 + 9}"} for i in range(120)])
    with pytest.raises(ValueError, match=r"the label '1.', which is no digit; use 0 to 9, or zero to nine"):
        AnyDigits(pictures=pictures).table("train")
