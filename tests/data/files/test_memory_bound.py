"""Files that are read into memory whole are refused before they are read if they would not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qkv.data.files import memory_bound
from qkv.data.files.memory_bound import check_fits
from qkv.data.readers.coco_voc import Coco
from qkv.data.readers.labelled_text import Labelled
from qkv.data.readers.midi_scores import MidiScores
from qkv.data.readers.squad import Questions


def free(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setattr(memory_bound.psutil, "virtual_memory", lambda: SimpleNamespace(available=n))


def test_what_fits_passes_and_what_does_not_is_told_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 7 << 30)
    check_fits(Path("a.json"), 1 << 30, 7, "split it")
    with pytest.raises(
        ValueError,
        match=r"'a.json' has 1,100 MiB, which take about 7\.5 GiB in memory, and 7\.0 GiB are free; split it",
    ):
        check_fits(Path("a.json"), 1100 << 20, 7, "split it")


SOURCES: dict[str, Callable[[Path], Any]] = {
    "squad.json": lambda path: Questions(path=str(path)).open("train"),
    "coco.json": lambda path: Coco(path=str(path)).open("train"),
    "pieces.json": lambda path: MidiScores(path=str(path)).open("train"),
    "table.csv": lambda path: Labelled(path=str(path)).open("train"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources_that_parse_a_whole_file_are_bounded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_text("text,label\n" + "a b,c\n" * 99 if name.endswith(".csv") else json.dumps({"data": ["x" * 500]}))
    free(monkeypatch, 1000)
    with pytest.raises(ValueError, match=r"GiB in memory, and 0\.0 GiB are free; "):
        SOURCES[name](path)
