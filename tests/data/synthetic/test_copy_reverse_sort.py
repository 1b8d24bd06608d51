from __future__ import annotations

import pytest

from qkv.data.synthetic.copy_reverse_sort import Copy, Reverse, Sort, Toy


@pytest.mark.parametrize(
    ("toy", "answer"),
    [(Copy(), lambda s: s), (Reverse(), lambda s: s[::-1]), (Sort(), sorted)],
    ids=["copy", "reverse", "sort"],
)
def test_the_target_is_the_answer(toy: Toy, answer: object) -> None:
    for example in toy.replace(train=200).examples():
        symbols = example["source"].split(" ")
        assert 4 <= len(symbols) <= 12 and all(len(symbol) == 1 for symbol in symbols)
        assert example["target"].split(" ") == list(answer(symbols))  # type: ignore[operator]


def test_held_out_sequences_are_different_and_never_trained_on() -> None:
    toy = Reverse(symbols="digits", shortest=2, longest=3, validation=40, test=40, train=5000)
    train, validation, test = ([e["source"] for e in toy.examples(split)] for split in ("train", "validation", "test"))
    assert len(set(validation)) == len(validation) == 40 and len(set(test)) == len(test) == 40
    assert not set(train) & set(validation) and not set(train) & set(test) and not set(validation) & set(test)


def test_training_sequences_are_fresh_each_epoch_and_the_same_each_time() -> None:
    toy = Copy(train=50)
    first = list(toy.examples(seed=3, epoch=0))
    assert first == list(toy.examples(seed=3, epoch=0))
    assert first != list(toy.examples(seed=3, epoch=1)) != list(toy.examples(seed=4, epoch=1))
    assert list(toy.examples("test", seed=1)) == list(toy.examples("test", seed=2))


def test_few_possible_sequences_are_an_error_or_fewer_examples() -> None:
    with pytest.raises(ValueError, match="longest \\(2\\) is less than shortest \\(4\\)"):
        Copy.from_dict({"longest": 2})
    with pytest.raises(ValueError, match="too few such sequences"):
        Copy.from_dict({"symbols": "digits", "shortest": 1, "longest": 1})
    assert 0 < len(Copy(symbols="digits", shortest=2, longest=2).table("test")) < 100
