"""Baselines for music: how likely frames are by how often their notes sound, and by the few words before each."""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from typing import Any

from qkv.data.media.note_names import END, Frame, frames_to_text
from qkv.data.readers.midi_scores import MidiScores

_KEYS = range(21, 109)  # of a piano


def single_notes(words: list[str]) -> dict[str, Any]:
    """Each of 88 keys sounds or not, by itself, as often as in the training data (add one)."""
    train, test = _frames(words)
    frames = [frame for piece in train for frame in piece]
    counts = Counter(note for frame in frames for note in frame)
    p = {key: (counts[key] + 1) / (len(frames) + 2) for key in _KEYS}
    nll = [-sum(math.log(p[key] if key in frame else 1 - p[key]) for key in _KEYS) for piece in test for frame in piece]
    return {"name": "each key independently", "frame_nll": sum(nll) / len(nll)}


def markov(words: list[str], order: int = 5) -> dict[str, Any]:
    """Each word given the `order` before it, Witten and Bell's way: what is rare falls back on fewer."""
    train, test = _frames(words)
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for piece in train:
        said = ["<s>"] * order + frames_to_text(piece).split()
        for i in range(order, len(said)):
            for n in range(order + 1):
                counts[tuple(said[i - n : i])][said[i]] += 1
    size, total, frames = len(counts[()]) + 1, 0.0, 0
    for piece in test:
        said = ["<s>"] * order + frames_to_text(piece).split()
        for i in range(order, len(said)):
            p = 1 / size
            for n in range(order + 1):
                seen = counts.get(tuple(said[i - n : i]))
                if seen:
                    p = (seen[said[i]] + len(seen) * p) / (seen.total() + len(seen))
            total -= math.log(p)
            frames += said[i] == END
    return {"name": f"a Markov chain over {order} words", "frame_nll": total / frames}


COMMANDS = {"single-notes": single_notes, "markov-notes": markov}


def _frames(words: list[str]) -> tuple[list[list[Frame]], list[list[Frame]]]:
    """The pieces of the training and of the test split of a file of scores."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines", description=_frames.__doc__)
    parser.add_argument("path")
    source = MidiScores(path=parser.parse_args(words).path)
    train, test = ([one["frames"] for one in source.examples(split, shuffle=False)] for split in ("train", "test"))
    return train, test
