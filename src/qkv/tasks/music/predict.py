"""Prediction of how a piece of music continues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...data.media.midi import to_midi
from ...data.media.note_names import Frame, frames_to_text
from ...data.readers.midi_scores import Scores
from ...data.source import Skipped
from ..prediction import Prediction, TrainedModel
from .metric import continued
from .task import Music

NEW = "piece"  # the name of one that has no beginning


class Piece(NamedTuple):
    """The beginning of one, the file that it is of, and what files of it are named."""

    frames: list[Frame]
    input: str
    name: str


@Music.predicts
def predict(
    task: Music, trained: TrainedModel, paths: Sequence[str], *, seed: int = 0, **_: Any
) -> Iterator[Prediction]:
    """The frames that follow each piece in some files (MIDI, or chords in JSON), `task.goes_on` of them at most; those of a
    piece from its beginning where there are no files. Files: the piece with what follows, as MIDI.

    Each piece is drawn by chance by a seed of its own, from `seed` on.
    """
    steps = trained.source.steps if isinstance(trained.source, Scores) else 1
    pieces = [piece for path in paths for piece in _pieces(path, steps)] or [Piece([], "", NEW)]
    for number, piece in enumerate(pieces, seed):
        new = continued(trained.model, trained.words, piece.frames, task.goes_on, number)
        fields = {"prompt": frames_to_text(piece.frames), "output": frames_to_text(new)}
        said = f"{piece.input}: {frames_to_text(new)}" if piece.input else frames_to_text(new)
        yield Prediction(piece.input, new, said, fields, piece.name, partial(_file, [*piece.frames, *new], steps))


def _file(frames: Sequence[Frame], steps: int) -> Mapping[str, bytes]:
    return {".mid": to_midi(frames, steps)}


def _pieces(path: str, steps: int) -> Iterator[Piece]:
    """The pieces of a file; of one alone, and of several with their numbers."""
    table = Scores(path=path, steps=steps, shortest=1).open("train")
    for number in range(len(table)):
        found = table[number]
        if found is None or isinstance(found, Skipped):
            raise ValueError(f"{path}, piece {number + 1:,}, is {found}: there is nothing to go on with")
        alone, stem = len(table) == 1, Path(path).stem
        yield Piece(
            found["frames"],
            path if alone else f"{path}, piece {number + 1:,}",
            f"{stem}.continued" if alone else f"{stem}-{number + 1}.continued",
        )
