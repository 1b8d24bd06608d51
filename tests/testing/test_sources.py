"""Checks of sources pass for qkv's own and find wrong ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_subset import fast
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from qkv.data.memory import Memory
from qkv.data.source import Source, Split, Table
from qkv.testing import Report, check

GENERATED = [
    *("calls", "copy", "digits", "endings", "facts", "folds", "localise", "matches", "mentions", "moving-digits"),
    *("paraphrases", "progressions", "reverse", "scenes", "senses", "shapes", "sort", "stdlib", "verdicts", "waves"),
]
WORDS = ("cat", "dog", "hen", "cow", "owl")
DEAR = ("stdlib", "localise", "shapes", "progressions")
LINES = [f"the {word} is {i} years old" for i in range(12) for word in WORDS]


def lines_of(folder: Path, name: str, lines: list[str]) -> str:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def pictures(folder: Path) -> str:
    for i in range(12):
        (folder / WORDS[i % 2]).mkdir(exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (6, 6, 3), np.uint8)
        Image.fromarray(pixels).save(folder / WORDS[i % 2] / f"{i}.png")
    return str(folder)


def records(folder: Path, rows: list[dict[str, Any]]) -> str:
    return lines_of(folder, "rows.jsonl", [json.dumps(row) for row in rows])


def tagged(folder: Path) -> str:
    return lines_of(folder, "words.txt", [f"the D\n{line.split()[1]} N\n{i} C\n" for i, line in enumerate(LINES)])


def questions(folder: Path) -> str:
    rows = [
        {"context": line, "question": "who?", "answers": {"text": [line[4:7]], "answer_start": [4]}} for line in LINES
    ]
    return records(folder, rows)


FILES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "text": lambda folder: {"path": lines_of(folder, "a.txt", LINES), "documents": "line"},
    "cloze": lambda folder: {"path": lines_of(folder, "a.txt", LINES)},
    "pairs": lambda folder: {"path": lines_of(folder, "a.tsv", [f"{line}\t{line.upper()}" for line in LINES])},
    "labelled": lambda folder: {
        "path": lines_of(folder, "a.tsv", ["text\tlabel", *(f"{line}\t{len(line) % 2}" for line in LINES)])
    },
    "jsonl": lambda folder: {"path": records(folder, [{"text": line} for line in LINES])},
    "choices": lambda folder: {
        "path": records(folder, [{"text": line, "choices": list(WORDS), "answer": 0} for line in LINES])
    },
    "questions": lambda folder: {"path": questions(folder)},
    "columns": lambda folder: {"path": tagged(folder)},
    "fasta": lambda folder: {"path": lines_of(folder, "a.fasta", [f">p{i}\nMKV{'ACD' * (i + 1)}" for i in range(30)])},
    "series": lambda folder: {
        "path": lines_of(folder, "a.csv", ["x", *(f"{np.sin(i / 7) + 0.001 * i:.4f}" for i in range(900))])
    },
    "images": lambda folder: {"path": pictures(folder)},
}


def outcomes(report: Report) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks}


@pytest.mark.parametrize("kind", fast(GENERATED, *(kind for kind in GENERATED if kind not in DEAR)))
def test_own_generated_sources_pass(kind: str) -> None:
    check(Source.from_dict({"kind": kind})).raise_for_failures()


@pytest.mark.parametrize("kind", FILES)
def test_own_sources_of_files_pass(kind: str, tmp_path: Path) -> None:
    report = check(Source.from_dict({"kind": kind, **FILES[kind](tmp_path)}))
    report.raise_for_failures()
    assert outcomes(report)["splits apart"] == outcomes(report)["read in any order"] == "passed"


@given(st.lists(st.text(min_size=1, max_size=8), min_size=30, max_size=60, unique=True))
def test_rows_in_memory_pass(texts: list[str]) -> None:
    check(Memory.of([{"text": f"row {i} {text}"} for i, text in enumerate(texts)])).raise_for_failures()


def test_a_mixture_passes() -> None:
    parts = [{"source": kind, "prefix": f"{kind}: "} for kind in ("copy", "reverse")]
    check(Source.from_dict({"kind": "mixture", "parts": parts})).raise_for_failures()


def numbers(split: Split, seed: int, epoch: int, n: int = 40) -> list[dict[str, Any]]:
    random = np.random.default_rng([len(split), seed, epoch])
    return [{"number": number} for number in random.random(n).tolist()]


class Restless(Source, kind="mutant-restless"):
    """Draws from a generator without a seed."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [{"number": float(number)} for number in np.random.default_rng().random(40)]


class Successive:
    def __init__(self, split: Split, seed: int) -> None:
        self.random = np.random.default_rng([len(split), seed])

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"number": float(self.random.random())}


class Stateful(Source, kind="mutant-stateful"):
    """Each entry is the next draw, whichever was asked for."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return Successive(split, seed)


class Shared(Source, kind="mutant-shared"):
    """The same examples in each split."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return numbers("train", seed, epoch)


class Repeating(Source, kind="mutant-repeating"):
    """Its last row is read twice."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        rows = [{**row, "where": f"{split}.txt:{i}"} for i, row in enumerate(numbers(split, seed, epoch))]
        return [*rows, rows[-1]]


class Tuples(Source, kind="mutant-tuples"):
    """Examples that are not dictionaries."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [tuple(row.values()) for row in numbers(split, seed, epoch)]  # type: ignore[return-value]


class Hidden(Source, kind="mutant-hidden"):
    """Holds an open file."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return numbers(split, seed, epoch)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle an open file")


@pytest.mark.parametrize(
    "part, failure, reason",
    [
        (Restless(), "same seed, same entries", "differs when the split is opened again"),
        (Stateful(), "read in any order", "depends on which entries were read before it"),
        (Shared(), "splits apart", "entry 0 of validation is also in train"),
        (Repeating(), "no row twice", "entries 39 and 40 of train are both the row train.txt:39"),
        (Tuples(), "entries", "entry 0 of train is of type tuple; it has to be a dict, Skipped or None"),
        (Hidden(), "worker processes", "can't be sent to a worker process: cannot pickle an open file"),
    ],
    ids=lambda value: value.kind if isinstance(value, Source) else "",
)
def test_wrong_sources_fail(part: Source, failure: str, reason: str) -> None:
    reasons = {failed.name: failed.reason for failed in check(part).failures}
    assert reason in reasons.get(failure, ""), reasons


def test_a_source_without_data_fails_once() -> None:
    (failed,) = check(Source.from_dict({"kind": "text"})).failures
    assert failed.name == "entries" and "no training data" in failed.reason
