"""Held-out splits: chosen by hash in groups, always the same, and never trained on."""

from __future__ import annotations

import pytest

from qkv.data.holdout import HoldOutSource
from qkv.data.source import Example, Split, Table


class Translations(HoldOutSource, kind="held-out-translations"):
    """`n` sources with three translations each."""

    n: int = 400
    own_test: bool = False

    def gives(self, split: Split) -> bool:
        return split == "train" or (split == "test" and self.own_test)

    def open(self, split: Split) -> Table:
        return [{"source": f"word {i // 3}", "target": f"{split} {i}"} for i in range(3 * self.n)]

    def stamp(self) -> tuple[object, ...]:
        return "the words", self.n


def sources(source: Translations, split: Split) -> list[Example]:
    return [example["source"] for example in source.examples(split, shuffle=False)]


def test_all_translations_of_a_source_are_held_out_together() -> None:
    train, validation, test = (sources(Translations(), split) for split in ("train", "validation", "test"))
    assert not set(train) & set(validation) and not set(train) & set(test) and not set(validation) & set(test)
    assert len(train) + len(validation) + len(test) == 1200 and len(validation) % 3 == len(test) % 3 == 0
    assert 120 <= len(validation) < 123 and 120 <= len(test) < 123  # a tenth of a small data set
    counts = f"{len(validation)} for validation and {len(test)} for test"
    assert Translations().notes() == (f"held out of the training data by hash: {counts}",)


class Repeated(Translations, kind="held-out-repeated"):
    """Each translation twice."""

    def open(self, split: Split) -> Table:
        return [{"source": f"word {i // 6}", "target": f"{split} {i // 2}"} for i in range(6 * self.n)]

    def stamp(self) -> tuple[object, ...]:
        return "the words, repeated", self.n


def test_repeats_of_held_out_examples_are_told() -> None:
    validation, test, train = (len(sources(Repeated(), split)) for split in ("validation", "test", "train"))
    left = 2400 - validation - test - train
    assert left == validation + test  # each of these has one repeat, which isn't trained on
    assert Repeated().notes()[0].endswith(f" for test; {left} rows equal to one of them are in no split")


def test_a_separate_split_is_not_held_out() -> None:
    source = Translations(own_test=True)
    assert len(sources(source, "test")) == 1200 and "for test" not in source.notes()[0]
    assert next(example["target"][:4] for example in source.examples("test")) == "test"


def test_large_data_hold_out_two_percent_and_at_most_about_a_thousand() -> None:
    assert 400 <= len(sources(Translations(n=6_700), "test")) < 410
    assert 1000 <= len(sources(Translations(n=20_000), "test")) < 1010


def test_too_little_data_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"the words: only 0 different|the words: no example that can be used"):
        Translations(n=0).table("test")
    with pytest.raises(ValueError, match=r"too few to hold out some for validation and test, so give data for these"):
        Translations(n=0).table("train")


class Judged(HoldOutSource, kind="held-out-judged"):
    """Texts with two labels each, and questions with the same text and other choices."""

    field: str = "label"

    def gives(self, split: Split) -> bool:
        return split == "train"

    def open(self, split: Split) -> Table:
        return [{"text": f"text {i // 2}", self.field: f"{i % 2}"} for i in range(800)]

    def stamp(self) -> tuple[object, ...]:
        return "the texts", self.field


@pytest.mark.parametrize("field", ["label", "score", "choices", "answer", "tags"])
def test_a_text_is_held_out_with_all_its_labels(field: str) -> None:
    source = Judged(field=field)
    held = [example for split in ("validation", "test") for example in source.examples(split, shuffle=False)]
    train = list(source.examples("train", shuffle=False))
    assert len(held) + len(train) == 800 and len(held) == 2 * len({example["text"] for example in held})
    assert not {example["text"] for example in held} & {example["text"] for example in train}
    assert "in no split" not in source.notes()[0]
