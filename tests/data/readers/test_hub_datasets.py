from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from data_stand_in import Characters
from data_streams import SMALL, same

from qkv.data import Source, stream
from qkv.data.readers.hub_datasets import Datasets, _opened, _part

PAIRS: dict[str, Any] = {"source": "translation.en", "target": "translation.de"}


def records(n: int) -> list[dict[str, Any]]:
    return [{"id": i, "translation": {"en": f"line {i}", "de": f"Zeile {i}"}, "text": f"text {i}"} for i in range(n)]


class FakeData:
    """As much of a data set as is used."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.column_names = rows, list(rows[0])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return self.rows[i]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def select_columns(self, names: list[str]) -> FakeData:
        return FakeData([{name: row[name] for name in names} for row in self.rows])


@pytest.fixture(autouse=True)
def fresh() -> None:
    _opened.cache_clear()
    _part.cache_clear()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A library that knows one data set; what it was asked for."""
    asked: list[tuple[Any, ...]] = []

    def load(path: str, name: str | None, *, split: str | None, revision: str | None, streaming: bool) -> Any:
        asked.append((path, name, split, revision, streaming))
        if path != "some/pairs":
            raise FileNotFoundError(f"no {path} on the Hub\nand a long story")
        return FakeData(records(5)) if split else {"train": FakeData(records(200)), "dev": FakeData(records(7))}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))  # type: ignore[arg-type]
    return asked


def source(**fields: Any) -> Datasets:
    made = Source.from_dict({"kind": "datasets", "path": "some/pairs", **PAIRS, **fields})
    assert isinstance(made, Datasets) and Source.from_json(made.to_json()) == made
    return made


def test_splits_are_found_by_name_or_held_out(library: list[tuple[Any, ...]]) -> None:
    found = source(name="de-en", revision="v1")
    assert found.notes() == ("held out of the training data by hash: 20 for test",)
    counts = {split: sum(1 for _ in found.examples(split)) for split in ("train", "validation", "test")}
    assert counts == {"train": 180, "validation": 7, "test": 20}
    assert next(found.examples("validation")) == {"source": "line 0", "target": "Zeile 0"}
    assert library == [("some/pairs", "de-en", None, "v1", False)]


def test_splits_by_name_and_by_part(library: list[tuple[Any, ...]]) -> None:
    found = source(splits={"test": "dev", "validation": "train[:5]"})
    assert sum(1 for _ in found.examples("test")) == 7 and sum(1 for _ in found.examples("validation")) == 5
    assert library[-1] == ("some/pairs", None, "train[:5]", None, False) and not found.notes()


def test_running_text_and_rows_without_it(library: list[tuple[Any, ...]]) -> None:
    text = source(source=None, target=None)
    assert next(text.examples("validation")) == {"text": "text 0"}
    lacking = source(target="translation.fr", splits={"validation": "dev", "test": "dev"})
    assert lacking.open("train")[0] == "without a text 'translation.fr'"


def test_a_stream_of_it_is_read_in_order(library: list[tuple[Any, ...]]) -> None:
    flowing = source(streaming=True, splits={"test": "dev"})
    assert not flowing.fixed and library == []
    with stream(flowing, Characters(), SMALL, seq2seq=True, epochs=1) as opened:
        assert sum(len(batch.labels) for batch in opened) == 200  # type: ignore[arg-type]
    assert library[0][-1] is True


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"path": None}, "no training data: give data.path, the name of a dataset or a folder with one"),
        ({"path": "other"}, "the library datasets can't open 'other': no other on the Hub$"),
        ({"source": "English.x"}, "some/pairs has no column 'English'; there is"),
        ({"splits": {"train": "trian"}}, "some/pairs has no split 'trian'; did you mean 'train'"),
        ({"streaming": True}, "has no test split, and none can be held out of a stream; name one as splits.test"),
        ({"target": "translation.fr"}, "no example that can be used there, and 200 without a text 'translation.fr'"),
    ],
)
def test_what_is_given_wrongly(fields: dict[str, Any], said: str, library: list[tuple[Any, ...]]) -> None:
    with pytest.raises(ValueError, match=said):
        list(source(**fields).examples("train"))
        list(source(**fields).examples("test"))


def test_columns_that_contradict_one_another() -> None:
    with pytest.raises(ValueError, match="give both columns source and target, or neither"):
        source(target=None)
    with pytest.raises(ValueError, match="not both"):
        source(text="text")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="which is not installed: pip install datasets"):
        source().table("train")


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = pytest.importorskip("datasets", reason="the library datasets is not installed")
    monkeypatch.setattr(found.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    found.disable_progress_bars()
    return found


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("saved", ["save_to_disk", "jsonl"])
def test_the_real_library(tmp_path: Path, real: Any, saved: str, streaming: bool) -> None:
    splits = real.DatasetDict(
        {name: real.Dataset.from_list(records(n)) for name, n in (("train", 150), ("validation", 9), ("test", 5))}
    )
    if saved == "jsonl":
        for name, data in splits.items():
            data.to_json(tmp_path / f"{name}.jsonl")
    else:
        splits.save_to_disk(str(tmp_path))
    found = source(path=str(tmp_path), streaming=streaming)
    assert [sum(1 for _ in found.examples(split)) for split in ("train", "validation", "test")] == [150, 9, 5]
    whole = list(itertools.islice(stream(found, Characters(), SMALL, seq2seq=True), 40))
    assert whole[-1].position["epoch"] > 1
    for i in (0, 7, 19, 35):
        position = json.loads(json.dumps(whole[i].position))
        resumed = itertools.islice(stream(found, Characters(), SMALL, seq2seq=True, position=position), 4)
        assert all(itertools.starmap(same, zip(whole[i + 1 :], resumed, strict=False)))


def test_the_real_librarys_errors_are_one_sentence(tmp_path: Path, real: Any) -> None:
    with pytest.raises(ValueError, match=r"^the library datasets can't open '.*nothing': [^\n]+$"):
        source(path=str(tmp_path / "nothing")).table("train")
