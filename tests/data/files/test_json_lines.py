"""JSON and JSON Lines files: values, fields at dotted paths, and errors that name the line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from qkv.data.files.json_lines import json_entries, json_field, json_file, json_object, json_table, json_value
from qkv.data.files.lines import Lines


def test_fields_are_found_at_dotted_paths() -> None:
    record = {"translation": {"de": "Hund", "n": 3}}
    assert json_value(record, "translation.n") == 3
    assert json_field(record, "translation.de") == "Hund"
    assert json_field(record, "translation.n") is None
    assert json_value(record, "translation.fr.x") is None


def test_a_table_skips_empty_lines_and_names_bad_ones(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n \n{"text"\n')
    table = json_table(Lines(tmp_path / "a.jsonl"), lambda record, i: {**record, "line": i})
    assert len(table) == 3 and table[0] == {"text": "a", "line": 0} and table[1] == "empty"
    with pytest.raises(ValueError, match=r"a\.jsonl', line 3, is not valid JSON"):
        table[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"\\ud800"', r"x has half of a character \(\\ud800\)"),
        ("[" * 200_000, "x is nested too deeply"),
        ("nothing", "x is not valid JSON"),
        (
            '{"text": "a", "meta": {"label": 1, "n": 2, "label": 3}}',
            "x has the key 'label' twice in one object; remove one",
        ),
    ],
)
def test_invalid_values_are_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        json_object(text, "x")


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert json_object('"\\ud83d\\ude00"', "x") == "\U0001f600"


def test_a_json_file_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"a": [1]}'))
    assert json_file(tmp_path / "a.json.gz") == {"a": [1]}
    (tmp_path / "wide.json").write_text('[{"a": "\u00e9"}]', "utf-16")  # as PowerShell writes it
    assert json_entries(tmp_path / "wide.json") == [{"a": "\u00e9"}]
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(ValueError, match=r"b\.json' is not valid JSON"):
        json_file(tmp_path / "b.json")
