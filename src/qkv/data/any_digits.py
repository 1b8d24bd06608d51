"""Digits as handwriting, speech, dial tones or words: one digit, or two digits and their sum."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..core.spec import brief
from .readers.digits import Digits
from .shuffle import mix
from .source import SPLITS, Example, Source, Split, Table
from .synthetic.made_speech import WORDS, MadeSpeech
from .tables import ComputedTable

Form = Literal["word", "written", "spoken", "dialed"]
PLACES: dict[Form, str] = {"written": "image", "spoken": "sound", "dialed": "series"}
"""The media of digits that are no words."""
SUMS = (*WORDS, "ten", *["eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"])


class FormedDigit(NamedTuple):
    """A digit in one of its forms: a word, a picture, a sound or a series."""

    form: Form
    digit: int
    value: str | NDArray[np.generic] | tuple[object, object]


class AnyDigits(Source, kind="any-digits"):
    """Questions with one digit, or with two and "plus" between them. The answer says in which form each is, and which:

        <image>               →  written seven
        <sound> plus three    →  spoken two plus word three is five

    pictures: a source of pictures whose labels are digits, such as `{kind: idx, path: mnist}`.
    sounds:   a source of sounds with a digit each: by label, as `{kind: sounds, …}`, or by a word as text.
    forms:    the forms that occur; a dialed digit is a series of as many pulses as the digit says, and ten for zero, as a
              rotary dial sends them.
    sums:     the share of questions with two digits.
    noise:    standard deviation of the noise in series, whose pulses are 1 high.
    length:   numbers in a series.

    Training questions are drawn anew in each epoch; validation and test questions are always the same.
    """

    path_fields = ()

    pictures: Source = Digits()
    sounds: Source = MadeSpeech(shortest=1, longest=1, train=3000, validation=200, test=300)
    forms: tuple[Form, ...] = ("word", "written", "spoken", "dialed")
    sums: float = Field(default=0.5, ge=0, le=1)
    noise: float = Field(default=0.15, ge=0)
    length: int = Field(default=96, ge=48)
    train: int = Field(default=4000, gt=0)
    validation: int = Field(default=200, gt=0)
    test: int = Field(default=400, gt=0)

    @property
    def special(self) -> tuple[str, ...]:
        return tuple(f"<{PLACES[form]}>" for form in self.forms if form in PLACES)

    def notes(self) -> tuple[str, ...]:
        return (*self.pictures.notes(), *self.sounds.notes())

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        start = (seed, epoch) if split == "train" else (SPLITS.index(split),)
        pools: dict[str, list[FormedDigit]] = {
            form: _pool(source, split, field, _stamp(source))
            for form, source, field in (("written", self.pictures, "image"), ("spoken", self.sounds, "audio"))
            if form in self.forms
        }
        return ComputedTable(
            getattr(self, split),
            lambda i: self.draw(pools, np.random.default_rng(mix(*start, i)), f"question {i + 1:,} of {split}"),
        )

    def draw(self, pools: dict[str, list[FormedDigit]], random: np.random.Generator, where: str) -> Example:
        """Draw a question. `terms` are its digits, `image`, `sound` and `series` what stands at its places."""
        terms = [self._term(pools, random) for _ in range(1 + (random.random() < self.sums))]
        media: dict[str, list[Any]] = {}
        for term in terms:
            if term.form in PLACES:
                media.setdefault(PLACES[term.form], []).append(term.value)
        shown = [f"<{PLACES[one.form]}>" if one.form in PLACES else WORDS[one.digit] for one in terms]
        said = [(one.form, one.digit) for one in terms]
        return {"question": " plus ".join(shown), "answer": answer_of(said), **media, "terms": terms, "where": where}

    def _term(self, pools: dict[str, list[FormedDigit]], random: np.random.Generator) -> FormedDigit:
        form = self.forms[int(random.integers(len(self.forms)))]
        if form in pools:
            pool = pools[form]
            return pool[int(random.integers(len(pool)))]
        digit = int(random.integers(10))
        return FormedDigit(form, digit, self.dialed(digit, random) if form == "dialed" else WORDS[digit])

    def dialed(self, digit: int, random: np.random.Generator) -> NDArray[np.float32]:
        """A digit as pulses: each is on for 3 numbers and off for about 4, from a random start on."""
        count = digit or 10
        starts = np.cumsum(random.integers(6, 9, count))
        starts += random.integers(0, max(self.length - int(starts[-1]) - 3, 1)) - starts[0] + 1
        series = self.noise * random.standard_normal(self.length)
        for start in starts.tolist():
            series[start : start + 3] += 1
        return series.astype(np.float32)


def answer_of(said: Sequence[tuple[str, int]]) -> str:
    """The answer for digits in their forms: "written seven", "spoken two plus word three is five"."""
    words = " plus ".join(f"{form} {WORDS[digit]}" for form, digit in said)
    return words if len(said) == 1 else f"{words} is {SUMS[sum(digit for _, digit in said)]}"


def _stamp(source: Source) -> Hashable:
    stamp: Callable[[], Hashable] | None = getattr(source, "stamp", None)
    return None if stamp is None else stamp()


@lru_cache(maxsize=16)
def _pool(source: Source, split: Split, field: str, stamp: Hashable) -> list[FormedDigit]:
    """The pictures or sounds of a split."""
    form: Form = "written" if field == "image" else "spoken"
    found = []
    for example in source.examples(split, shuffle=False):
        value = example[field] if field == "image" else (example[field], example.get("rate"))
        found.append(FormedDigit(form, _digit(example), value))
    if not found:
        raise ValueError(f"the {split} split of the data has no {form} digits; give a source of more")
    return found


def _digit(example: Example) -> int:
    """The digit of an example by its label or its text. Raises ValueError for any other."""
    label = str(example.get("label", example.get("text", ""))).strip()
    if label in WORDS:
        return WORDS.index(label)
    if len(label) == 1 and label.isdecimal():
        return int(label)
    where = example.get("where", "an example")
    raise ValueError(f"{where} has the label {brief(label)}, which is no digit; use 0 to 9, or zero to nine")
