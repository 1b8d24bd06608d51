"""Strings of spoken words, put together from recordings of single words: each by one speaker, with pauses between."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from pydantic import Field, field_validator, model_validator

from ..core import expressions
from ..core.spec import brief
from .media.audio import Wave, resampled
from .readers.audio import Sounds
from .shuffle import mix
from .source import SPLITS, Example, Source, Split, Table
from .synthetic.base import check_range
from .tables import ComputedTable


class SpokenStrings(Source, kind="spoken-strings"):
    """Recordings of single words, such as digits, put together: "3 1 4" is a string of three sounds. The transcript is the
    classes of `words`, with spaces between.

    The sounds of a string have one speaker, by the first group of `speaker` in their file names. `held_out` names speakers
    whose sounds are the test split alone; otherwise the splits of `words` are those of the strings. Training strings are
    drawn anew in each epoch; validation and test strings are always the same.

    shortest, longest: words in a string.
    pause:   the longest pause between two words, in seconds; each is drawn evenly from 0 on, also before the first word and
             after the last.
    noise:   standard deviation of white noise over the whole string.
    mixed:   the share of training strings in which each word has a speaker drawn anew.
    """

    path_fields = ()

    words: Sounds
    speaker: str | None = None
    held_out: tuple[str, ...] = ()
    shortest: int = Field(default=3, ge=1)
    longest: int = Field(default=7, ge=1)
    pause: float = Field(default=0.2, ge=0)
    noise: float = Field(default=0.0, ge=0)
    mixed: float = Field(default=0.0, ge=0, le=1)
    train: int = Field(default=2000, gt=0)
    validation: int = Field(default=200, gt=0)
    test: int = Field(default=400, gt=0)

    @field_validator("speaker")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        expressions.check(value or "")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> SpokenStrings:
        check_range(self.shortest, self.longest)
        if self.held_out and self.speaker is None:
            raise ValueError("held_out names speakers, whom the setting speaker finds in file names; give it too")
        return self

    @property
    def libraries(self) -> tuple[str, ...]:
        return self.words.libraries

    def notes(self) -> tuple[str, ...]:
        counts = [f"{len(_voices(self, split, self.words.stamp())):,} for {split}" for split in SPLITS]
        voices = f"speakers by file names: {', '.join(counts)}" if self.speaker is not None else ""
        return (*((voices,) if voices else ()), *self.words.notes())

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        voices = _voices(self, split, self.words.stamp())
        start = (seed, epoch) if split == "train" else (SPLITS.index(split),)
        mixed = self.mixed if split == "train" else 0.0
        return ComputedTable(
            getattr(self, split),
            lambda i: self.draw(voices, np.random.default_rng(mix(*start, i)), f"string {i + 1:,}", mixed),
        )

    def draw(self, voices: list[list[Example]], random: np.random.Generator, where: str, mixed: float = 0.0) -> Example:
        """Draw a string of one speaker's sounds, or with the probability `mixed` of sounds of all."""
        sounds = voices[random.integers(len(voices))]
        if mixed and random.random() < mixed:
            sounds = [sound for voice in voices for sound in voice]
        chosen = [
            sounds[i] for i in random.integers(len(sounds), size=random.integers(self.shortest, self.longest + 1))
        ]
        text, seed = " ".join(one["label"] for one in chosen), int(random.integers(1 << 62))
        return {"audio": partial(self.joined, chosen, seed), "rate": chosen[0]["rate"], "text": text, "where": where}

    def joined(self, sounds: Sequence[Example], seed: int) -> Wave:
        """Sounds in a row at the rate of the first, with pauses drawn by the seed."""
        random, rate = np.random.default_rng(seed), sounds[0]["rate"]
        parts: list[Wave] = []
        for number, pause in enumerate(random.uniform(0, self.pause, len(sounds) + 1)):
            parts.append(np.zeros(int(pause * rate), np.float32))
            parts += [resampled(sounds[number]["audio"], sounds[number]["rate"], rate)] if number < len(sounds) else []
        wave = np.concatenate(parts)
        return (wave + self.noise * random.normal(0, 1, len(wave))).astype(np.float32) if self.noise else wave


@lru_cache(maxsize=16)
def _voices(source: SpokenStrings, split: Split, stamp: tuple[Hashable, ...]) -> list[list[Example]]:
    """The sounds of a split, by speaker. Raises ValueError if there are none."""
    groups: dict[str, list[Any]] = {}
    held = split == "test" and bool(source.held_out)
    for own in SPLITS if held else (split,):
        for example in source.words.examples(own, shuffle=False):
            name = _speaker(source, example)
            if (name in source.held_out) == held:
                groups.setdefault(name, []).append(example)
    if not groups:
        raise ValueError(
            f"no sound is by a speaker of the {split} split; `held_out` is {', '.join(source.held_out) or 'empty'}, and "
            "`speaker` finds the names of speakers in file names"
        )
    return [groups[name] for name in sorted(groups)]


def _speaker(source: SpokenStrings, example: Example) -> str:
    """The speaker of a sound. Raises ValueError if its file name doesn't tell."""
    if source.speaker is None:
        return ""
    match = expressions.search(source.speaker, example["where"])
    if match is None:
        raise ValueError(
            f"{example['where']}: data.speaker, {brief(source.speaker)}, finds no speaker in this file name"
        )
    return str(match[1] if match.re.groups else match[0])
