"""JSON files whose schema is broken are read, or end in one sentence that names the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from json_files import Mutant, check, mutants, readers

SEED = 40
PICTURES = "preprocessor_config.json"
EMPTY = {"quant_method": "compressed-tensors", "config_groups": {}}


@pytest.mark.parametrize("name", readers())
def test_what_is_mutated_is_read(name: str, tmp_path: Path) -> None:
    reader = readers()[name]
    lines = (
        "".join(json.dumps(record) + "\n" for record in reader.content) if reader.lines else json.dumps(reader.content)
    )
    (tmp_path / reader.file).write_text(lines)
    reader.read(tmp_path)


def test_mutated_files_are_read_or_told_by_name() -> None:
    assert [found for mutant in mutants(SEED, 250) if (found := check(mutant)) is not None] == []


@pytest.mark.slow
def test_many_mutated_files() -> None:
    assert [found for mutant in mutants(SEED + 1, 6000) if (found := check(mutant)) is not None] == []


def test_the_same_seed_gives_the_same_mutants() -> None:
    assert list(mutants(5, 30)) == list(mutants(5, 30)) != list(mutants(6, 30))


def _squad(context: object) -> str:
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [{"question": "q", "answers": []}]}]}]})


@pytest.mark.parametrize(
    "reader, text",
    [
        *(("SQuAD", _squad(context)) for context in (None, 3, {}, ["a"])),
        ("COCO", json.dumps({"images": [{"id": {}, "file_name": "a.jpg"}], "annotations": [], "categories": []})),
        ("COCO", json.dumps({"images": [{"id": 1, "file_name": None}], "annotations": [], "categories": []})),
        ("COCO", json.dumps({"images": [{"id": 1, "file_name": "a"}] * 2, "annotations": [], "categories": []})),
        (
            "compressed-tensors",
            json.dumps({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}}}),
        ),
        ("vocab.json", json.dumps({"a": 2**32})),
        ("vocab.json", json.dumps({"a": -1})),
        ("vocab.json", json.dumps({"a": {"id": 0}})),
        (PICTURES, json.dumps({**readers()[PICTURES].content, "do_center_crop": True, "crop_size": float("inf")})),
        ("rows", json.dumps([{"audio": {"array": ["a" * 5000], "sampling_rate": 8000}, "label": "dog"}])),
    ],
)
def test_what_ended_in_a_traceback_is_refused(reader: str, text: str, tmp_path: Path) -> None:
    assert check(Mutant(reader, text)) is None
    (tmp_path / readers()[reader].file).write_text(text)
    with pytest.raises(ValueError):
        readers()[reader].read(tmp_path)
