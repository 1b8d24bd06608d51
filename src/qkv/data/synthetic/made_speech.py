"""Generated speech: words spelled by sounds, one for each letter, in voices of different pitch and size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from ..media.audio import Wave
from ..shuffle import mix
from ..source import SPLITS, Example, Source, Split, Table
from ..tables import ComputedTable
from .base import check_range


class MadeSpeech(Source, kind="made-speech"):
    """Generated sound with transcripts: strings of the words "zero" … "nine". Each letter is a sound: two formants over a
    pitch, or for some consonants noise.

    A voice has a pitch, a length of vocal tract, which scales the formants, and a pace; each string has another voice. The
    voices of validation and test strings are drawn from the same range. Training strings are drawn anew in each epoch.

    shortest, longest: words in a string.
    """

    rate: int = Field(default=8000, ge=4000)
    shortest: int = Field(default=2, ge=1)
    longest: int = Field(default=5, ge=1)
    noise: float = Field(default=0.02, ge=0)
    train: int = Field(default=1500, gt=0)
    validation: int = Field(default=100, gt=0)
    test: int = Field(default=200, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_range(self.shortest, self.longest)
        return self

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        start = (seed, epoch) if split == "train" else (SPLITS.index(split),)
        return ComputedTable(getattr(self, split), lambda i: self.draw(np.random.default_rng(mix(*start, i)), i))

    def draw(self, random: np.random.Generator, i: int) -> Example:
        """Draw a string, which is spoken when its sound is read."""
        count = random.integers(self.shortest, self.longest + 1)
        words = [WORDS[k] for k in random.integers(len(WORDS), size=count)]
        seed = int(random.integers(1 << 62))
        return {
            "audio": partial(self.spoken, words, seed),
            "rate": self.rate,
            "text": " ".join(words),
            "where": f"made string {i + 1:,}",
        }

    def spoken(self, words: Sequence[str], seed: int) -> Wave:
        """Speak words in a voice drawn by the seed."""
        random = np.random.default_rng(seed)
        voice = _Voice(self.rate, random)
        parts = [voice.pause()]
        for word in words:
            parts += [*(voice.letter(letter) for letter in word), voice.pause()]
        wave = np.concatenate(parts) * random.uniform(0.3, 0.9)
        return (wave + self.noise * random.normal(0, 1, len(wave))).astype(np.float32)


WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# The first two formants in Hz of voiced letters; a nasal is softer. The band in Hz of hissed ones.
_FORMANTS = {
    "e": (530, 1850),
    "i": (300, 2300),
    "o": (500, 900),
    "u": (320, 750),
    "n": (250, 1400),
    "r": (420, 1250),
    "w": (300, 650),
    "v": (220, 1050),
    "g": (260, 1650),
    "z": (240, 2700),
}
_HISSES = {"s": (2700, 3900), "f": (1200, 3900), "x": (1500, 2500), "h": (500, 1500), "t": (1900, 3000)}
_SHORT = {"t", "h", "x", "g"}


class _Voice:
    """A speaker, drawn at random: pitch in Hz, scale of the formants, seconds of a letter."""

    def __init__(self, rate: int, random: np.random.Generator) -> None:
        self._rate, self._random = rate, random
        self._pitch, self._size = random.uniform(90, 240), random.uniform(0.88, 1.12)
        self._pace = random.uniform(0.07, 0.11)

    def pause(self) -> Wave:
        return np.zeros(int(self._random.uniform(0.04, 0.16) * self._rate), np.float32)

    def letter(self, letter: str) -> Wave:
        seconds = self._pace * self._random.uniform(0.85, 1.15) * (0.7 if letter in _SHORT else 1.0)
        time = np.arange(int(seconds * self._rate)) / self._rate
        sound = self._voiced(letter, time) if letter in _FORMANTS else self._hissed(letter, len(time))
        edge = np.minimum(np.minimum(time, seconds - time) / 0.012, 1.0).clip(0)
        return np.asarray(sound * edge, np.float32)

    def _voiced(self, letter: str, time: Any) -> Any:
        """Harmonics of the pitch, each as loud as the formants are near."""
        pitch = self._pitch * (1 + 0.03 * np.sin(2 * np.pi * 5 * time + self._random.uniform(0, 6)))
        phase = 2 * np.pi * np.cumsum(pitch) / self._rate
        harmonics = np.arange(1, int(0.45 * self._rate / self._pitch))
        loud = sum(
            weight * np.exp(-(((harmonics * self._pitch - formant * self._size) / 110.0) ** 2))
            for formant, weight in zip(_FORMANTS[letter], (1.0, 0.6), strict=True)
        )
        sound = (np.sin(phase[:, None] * harmonics) * (loud + 0.01 / harmonics)).sum(1)
        return sound / max(float(np.abs(sound).max()), 1e-6) * (0.5 if letter in "nvgz" else 0.8)

    def _hissed(self, letter: str, count: int) -> Any:
        """Noise within a band of frequencies."""
        spectrum = np.fft.rfft(self._random.normal(0, 1, count))
        hertz = np.fft.rfftfreq(count, 1 / self._rate)
        low, high = (edge * self._size for edge in _HISSES[letter])
        spectrum[(hertz < low) | (hertz > min(high, 0.48 * self._rate))] = 0
        sound = np.fft.irfft(spectrum, count)
        return sound / max(float(np.abs(sound).max()), 1e-6) * 0.4
