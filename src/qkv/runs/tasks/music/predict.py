"""Prediction of music: how pieces in MIDI files continue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ....data.media.midi import read, to_midi
from ....data.media.note_names import Frame, frames_to_text
from ....data.readers.midi_scores import MidiScores
from ....data.source import Skipped
from ..prediction import Prediction, TrainedModel
from .metric import continued
from .task import Music

NEW = "piece"  # the name of a piece without a prompt


class MusicPiece(NamedTuple):
    """The frames of a piece, the input file, and the name of output files."""

    frames: list[Frame]
    input: str
    name: str


@Music.predicts
def predict(
    task: Music, trained: TrainedModel, paths: Sequence[str], *, seed: int = 0, **_: Any
) -> Iterator[Prediction]:
    """Sample the next frames of each piece in files (MIDI, or chords in JSON), at most `task.goes_on`; without files, of a
    new piece. Output files: the piece with its continuation, as MIDI.

    Each piece is sampled with its own seed, from `seed` on.
    """
    steps = trained.source.steps if isinstance(trained.source, MidiScores) else 1
    pieces = [piece for path in paths for piece in _pieces(path, steps)] or [MusicPiece([], "", NEW)]
    for number, piece in enumerate(pieces, seed):
        new = continued(trained.model, trained.words, piece.frames, task.goes_on, number)
        fields = {"prompt": frames_to_text(piece.frames), "output": frames_to_text(new)}
        text = f"{piece.input}: {frames_to_text(new)}" if piece.input else frames_to_text(new)
        yield Prediction(piece.input, new, text, fields, piece.name, partial(_file, [*piece.frames, *new], steps))


def _file(frames: Sequence[Frame], steps: int) -> Mapping[str, bytes]:
    return {".mid": to_midi(frames, steps)}


def _pieces(path: str, steps: int) -> Iterator[MusicPiece]:
    """The pieces of a file, numbered if there are several."""
    table = MidiScores(path=path, steps=steps, shortest=1).open("train")
    for number in range(len(table)):
        example = table[number]
        if example is None or isinstance(example, Skipped):
            if example is not None and example.where:
                read(Path(example.where), steps)  # raises the error for which it was skipped
            raise ValueError(f"{path}, piece {number + 1:,}, has no notes, so there is nothing to continue")
        alone, stem = len(table) == 1, Path(path).stem
        yield MusicPiece(
            example["frames"],
            path if alone else f"{path}, piece {number + 1:,}",
            f"{stem}.continued" if alone else f"{stem}-{number + 1}.continued",
        )
