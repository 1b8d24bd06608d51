"""Parquet files as examples: by the source `parquet`, and wherever JSONL is read."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qkv.data import Source
from qkv.data.readers.time_series import TimeSeries

SPLITS = ("train", "validation", "test")


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
    return str(path)


def first(**settings: Any) -> dict[str, Any]:
    source = Source.from_dict(settings)
    assert Source.from_json(source.to_json()) == source
    return next(source.examples("train", shuffle=False))


def test_columns_become_examples_and_the_rest_is_held_out(tmp_path: Path) -> None:
    rows = [{"review": f"film {i}", "stars": i % 5} for i in range(200)]
    source = Source.from_dict(
        {"kind": "parquet", "path": written(tmp_path / "a.parquet", rows), "text": "review", "label": "stars"}
    )
    assert source.notes() == ("held out of the training data by hash: 20 for validation and 20 for test",)
    assert [sum(1 for _ in source.examples(split)) for split in SPLITS] == [160, 20, 20]
    example = next(source.examples("validation"))
    assert example["text"].startswith("film ") and example["label"] in "01234" and ", row " in example["where"]
    with pytest.raises(
        ValueError, match=r"has the columns review, stars; name those to read, such as data\.text=review"
    ):
        first(kind="parquet", path=str(tmp_path / "a.parquet"))


def test_a_folder_with_the_names_of_splits(tmp_path: Path) -> None:
    for split, shards, size in (("train", 2, 50), ("test", 1, 7)):
        for shard in range(shards):
            rows = [{"source": f"{split} {shard} {i}", "target": "x"} for i in range(size)]
            written(tmp_path / f"{split}-{shard:05}-of-{shards:05}.parquet", rows)
    (tmp_path / "._train-00000-of-00002.parquet").write_bytes(b"left by a system")
    source = Source.from_dict({"kind": "parquet", "path": str(tmp_path)})
    assert [sum(1 for _ in source.examples(split)) for split in SPLITS] == [90, 10, 7]
    assert source.notes() == ("held out of the training data by hash: 10 for validation",)
    with pytest.raises(ValueError, match=r"there is no file \*\.parquet in"):
        first(kind="parquet", path=str(tmp_path.parent / tmp_path.name / ".."))
    written(tmp_path / "test-00000-of-00001.parquet", [{"source": f"train 0 {i}", "target": "y"} for i in (3, 70)])
    assert source.notes()[1:] == ("1 of 2 test examples share their first text with training examples",)


def test_classes_that_the_library_datasets_named(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")
    png = io.BytesIO()
    Image.new("L", (3, 2), 9).save(png, "PNG")
    data = datasets.Dataset.from_dict({"image": [{"bytes": png.getvalue(), "path": None}] * 60, "label": [0, 1] * 30})
    data = data.cast_column("image", datasets.Image()).cast_column("label", datasets.ClassLabel(names=["cat", "dog"]))
    data.to_parquet(tmp_path / "a.parquet")
    source = Source.from_dict({"kind": "parquet", "path": str(tmp_path / "a.parquet")})
    table = source.open("train")  # type: ignore[attr-defined]
    assert table[1]["label"] == "dog" and table[1]["image"] == png.getvalue() and table.labels == ["cat", "dog"] * 30


def test_parquet_wherever_jsonl_is_read(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "hi {}"}, {"role": "assistant", "content": "yes"}]
    rows = {
        "pairs": {"source": "a {}", "target": "b", "translation": {"en": "c {}", "de": "d"}},
        "jsonl": {"text": "a {}", "messages": turns, "prompt": "p {}", "reply": "r"},
        "labelled": {"text": "a {}", "label": True, "score": 1.5, "meta": {"topic": "film"}},
        "choices": {"text": "a {}", "choices": ["x", "y"], "answer": 1},
        "questions": {"context": "Ann left {}", "question": "who?", "answer": "Ann", "start": 0},
    }
    for kind, row in rows.items():
        many = [json.loads(json.dumps(row).replace("{}", str(i))) for i in range(60)]
        path = written(tmp_path / f"{kind}.parquet", many)
        (tmp_path / f"{kind}.jsonl").write_text("\n".join(map(json.dumps, many)))
        settings: list[dict[str, Any]] = [{}]
        settings += [{"source_column": "translation.en", "target_column": "translation.de"}] if kind == "pairs" else []
        settings += [{"messages": "messages"}, {"prompt": "prompt", "answer": "reply"}] if kind == "jsonl" else []
        settings += [{"label": "meta.topic"}, {"score": "score"}] if kind == "labelled" else []
        for extra in settings:
            expected = first(kind=kind, path=str(tmp_path / f"{kind}.jsonl"), **extra)
            found = first(kind=kind, path=path, **extra)
            assert {**found, "where": ""} == {**expected, "where": ""}
            assert found.get("where", ".parquet', row ").partition(".parquet")[2].startswith("', row ")


def test_a_series(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    days = pandas.date_range("2024-01-01", periods=50)
    pandas.DataFrame({"day": days, "load": range(50), "price": np.arange(50) / 2}).to_parquet(tmp_path / "a.parquet")
    values, names = TimeSeries(path=str(tmp_path / "a.parquet"), history=4, horizon=2).values()
    assert names == ("load", "price") and values[7].tolist() == [7, 3.5]
    backwards = pandas.read_parquet(tmp_path / "a.parquet").iloc[::-1]
    backwards.to_parquet(tmp_path / "b.parquet", index=False)
    with pytest.raises(ValueError, match=r"row 2 is of 2024-02-18.*, before the row above it"):
        TimeSeries(path=str(tmp_path / "b.parquet")).values()
