"""Generated audio for sound classification: six classes that differ in how their pitch changes over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from ..media.audio import Wave
from ..shuffle import mix
from ..source import SPLITS, Example, Source, Split, Table
from ..tables import ComputedTable


class Calls(Source, kind="calls"):
    """Generated bird-like sounds of six classes: rising, falling, steady, trilling, clicking, hissing; at any pitch.

    The classes differ in how a sound changes over time, not in its pitches.
    """

    rate: int = Field(default=8000, gt=0)
    seconds: float = Field(default=0.64, gt=0)
    noise: float = Field(default=0.1, ge=0)
    train: int = Field(default=2000, gt=0)
    validation: int = Field(default=200, gt=0)
    test: int = Field(default=400, gt=0)

    @property
    def fixed(self) -> bool:
        return True

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        number = SPLITS.index(split)
        return ComputedTable(getattr(self, split), lambda i: self.generate(np.random.default_rng(mix(number, i)), i))

    def generate(self, random: np.random.Generator, i: int) -> Example:
        label = CALLS[i % len(CALLS)]
        time = np.arange(int(self.seconds * self.rate)) / self.rate
        sound = _call(label, time, self.seconds, random) * random.uniform(0.3, 0.9)
        noisy = sound + self.noise * random.normal(0, 1, len(time))
        return {"audio": noisy.astype(np.float32), "rate": self.rate, "label": label, "where": f"made sound {i}"}


CALLS = ("rising", "falling", "steady", "trilling", "clicking", "hissing")


def _call(label: str, time: Any, seconds: float, random: np.random.Generator) -> Wave:
    pitch = random.uniform(500, 1800)
    if label == "hissing":
        return np.asarray(random.normal(0, 0.5, len(time)) * np.sin(np.pi * time / seconds), np.float32)
    progress = time / seconds
    bend = {"rising": progress, "falling": 1 - progress, "trilling": 0.5 + 0.5 * np.sin(2 * np.pi * 9 * time)}
    frequency = pitch * (1 + 0.8 * bend.get(label, 0.5 * np.ones_like(time)))
    tone = np.sin(2 * np.pi * np.cumsum(frequency) * (time[1] - time[0]))
    if label == "clicking":
        tone *= (np.sin(2 * np.pi * 12 * time + random.uniform(0, 6)) > 0.6).astype(float)
    return np.asarray(tone, np.float32)
