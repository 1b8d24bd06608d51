from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from data_stand_in import Characters
from data_streams import SMALL, same
from PIL import Image

from qkv.data import Source, stream
from qkv.data.media import audio
from qkv.data.readers.hub_datasets import Datasets, _opened, part_of
from qkv.data.source import Skipped
from qkv.data.tables import StreamTable
from qkv.data.task import RandomContext
from qkv.nn.layers.patches import Patches
from qkv.runs.tasks.image_classification.task import ImageClassify

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
    part_of.cache_clear()


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
    assert found.notes() == (
        "held out of the training data by hash: 20 for test",
        "7 of 7 validation examples share their first text with training examples",
    )
    counts = {split: sum(1 for _ in found.examples(split)) for split in ("train", "validation", "test")}
    assert counts == {"train": 180, "validation": 7, "test": 20}
    assert next(found.examples("validation")) == {
        "source": "line 0",
        "target": "Zeile 0",
        "where": "some/pairs, dev, row 1",
    }
    assert library == [("some/pairs", "de-en", None, "v1", False)]


def test_splits_by_name_and_by_part(library: list[tuple[Any, ...]]) -> None:
    found = source(splits={"test": "dev", "validation": "train[:5]"})
    assert sum(1 for _ in found.examples("test")) == 7 and sum(1 for _ in found.examples("validation")) == 5
    assert library[-1] == ("some/pairs", None, "train[:5]", None, False)
    assert found.notes() == tuple(
        f"{n} of {n} {split} examples share their first text with training examples"
        for n, split in ((5, "validation"), (7, "test"))
    )


def test_running_text_and_rows_without_it(library: list[tuple[Any, ...]]) -> None:
    text = source(source=None, target=None)
    assert next(text.examples("validation")) == {"text": "text 0", "where": "some/pairs, dev, row 1"}
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
    with pytest.raises(
        ValueError, match=r"dataset 'some/pairs' needs datasets, which is not installed: pip install 'qkv\[datasets\]'"
    ):
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


@pytest.mark.parametrize("saved", ["save_to_disk", "jsonl", "parquet"])
def test_a_resumed_stream_continues_where_it_stopped(tmp_path: Path, real: Any, saved: str) -> None:
    """Each row once and in order, without reading those before."""
    splits = real.DatasetDict({name: real.Dataset.from_list(records(1000)) for name in ("train", "validation", "test")})
    if saved == "save_to_disk":
        splits.save_to_disk(str(tmp_path))
    for name, data in splits.items() if saved != "save_to_disk" else ():
        getattr(data, "to_json" if saved == "jsonl" else "to_parquet")(tmp_path / f"{name}.{saved}")
    found = source(path=str(tmp_path), streaming=True)
    batching = SMALL.replace(pool=100)
    whole = list(itertools.islice(stream(found, Characters(), batching, seq2seq=True, epochs=2), 10_000))
    for i in (len(whole) // 4, len(whole) // 2 - 3, len(whole) // 2 + 5, len(whole) - 2):
        position = json.loads(json.dumps(whole[i].position))
        assert (
            position["pool"] == 0 or position["pool"] * 100 - 64 < position["place"]["entry"] <= position["pool"] * 100
        )
        resumed = list(stream(found, Characters(), batching, seq2seq=True, epochs=2, position=position))
        assert len(resumed) == len(whole) - i - 1 and all(
            itertools.starmap(same, zip(whole[i + 1 :], resumed, strict=True))
        )


def test_a_resumed_stream_reads_no_row_before_its_place(tmp_path: Path, real: Any) -> None:
    real.DatasetDict({name: real.Dataset.from_list(records(500)) for name in ("train", "test")}).save_to_disk(
        str(tmp_path)
    )
    table = source(path=str(tmp_path), streaming=True, splits={"validation": "test"}).open("train")
    assert isinstance(table, StreamTable) and table.place() is None
    assert [table[i] for i in range(200)][-1]["where"].endswith("row 200")
    place = json.loads(json.dumps(table.place()))
    assert place["entry"] == 192
    read: list[str] = []
    load = table._load
    assert load is not None
    table._load = lambda entry, state: (read.append(row["where"]) or row for row in load(entry, state))
    table.go_to(place)
    assert table[200]["where"].endswith("row 201") and read[0].endswith("row 193") and len(read) == 10
    table.go_to({"entry": 192, "state": {"of": "another version"}})
    assert table[3]["where"].endswith("row 4")


def test_the_real_librarys_errors_are_one_sentence(tmp_path: Path, real: Any) -> None:
    with pytest.raises(ValueError, match=r"^the library datasets can't open '.*nothing': [^\n]+$"):
        source(path=str(tmp_path / "nothing")).table("train")


# -- every task --------------------------------------------------------------------------------------------------------


def saved(real: Any, folder: Path, columns: dict[str, list[Any]], **features: Any) -> str:
    """The folder of a dataset with these columns, each of 60 rows, without splits."""
    data = real.Dataset.from_dict(columns)
    for name, feature in features.items():
        data = data.cast_column(name, feature)
    data.save_to_disk(str(folder / "data"))
    return str(folder / "data")


def first(path: str, streaming: bool = False, **fields: Any) -> dict[str, Any]:
    split = {"validation": "train", "test": "train"}
    found = Source.from_dict({"kind": "datasets", "path": path, "streaming": streaming, "splits": split, **fields})
    return next(found.examples("validation"))


@pytest.fixture(params=[False, True], ids=["by index", "streaming"])
def streaming(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_labels_have_their_names(tmp_path: Path, real: Any, streaming: bool) -> None:
    labels = real.ClassLabel(names=["bad", "good"])
    path = saved(
        real, tmp_path, {"text": ["fine", "awful"] * 30, "label": [1, 0] * 30, "stars": [5, 1] * 30}, label=labels
    )
    example = first(path, streaming)
    assert (example["text"], example["label"]) == ("fine", "good")
    example = first(path, streaming, label="stars")  # the text has the name of a field
    assert (example["text"], example["label"]) == ("fine", "5")


def test_tagged_words(tmp_path: Path, real: Any, streaming: bool) -> None:
    tags = real.Sequence(real.ClassLabel(names=["O", "B-PER"]))
    path = saved(real, tmp_path, {"tokens": [["Ann", "left"]] * 60, "ner_tags": [[1, 0]] * 60}, ner_tags=tags)
    example = first(path, streaming)
    assert example["words"] == ["Ann", "left"] and example["tags"] == ["B-PER", "O"] and example["text"] == "Ann left"
    assert first(path, streaming, word="tokens", tag="ner_tags") == example


def test_questions_on_texts(tmp_path: Path, real: Any, streaming: bool) -> None:
    answers = [{"text": ["Ann"], "answer_start": [0]}, {"text": [], "answer_start": []}] * 30
    questions = {"context": [f"Ann left {i // 2}" for i in range(60)], "question": ["who?", "when?"] * 30}
    path = saved(real, tmp_path, {**questions, "answers": answers})
    example = first(path, streaming)
    assert (example["answers"], example["starts"], example["question"]) == (("Ann",), (0,), "who?")
    whole = Source.from_dict({"kind": "datasets", "path": path})
    contexts = {split: {e["context"] for e in whole.examples(split)} for split in ("train", "validation", "test")}
    assert not contexts["train"] & (contexts["validation"] | contexts["test"])
    wrong = saved(real, tmp_path / "b", {**questions, "answer": ["Ann"] * 60, "start": [3] * 60})
    with pytest.raises(ValueError, match="row 1: at 3 the context has ' le' and not the answer 'Ann'"):
        first(wrong, streaming)


def test_candidates(tmp_path: Path, real: Any, streaming: bool) -> None:
    choices = [{"text": ["a cat", "a dog"], "label": ["A", "B"]}] * 60
    path = saved(real, tmp_path, {"question": ["What barks?"] * 60, "choices": choices, "answerKey": ["B"] * 60})
    example = first(path, streaming, text="question", choices="choices", answer="answerKey")
    assert (example["text"], example["choices"], example["answer"]) == ("What barks?", ["a cat", "a dog"], 1)
    endings = {"start": ["it"] * 60, "end 0": ["ran"] * 60, "end 1": ["sat"] * 60, "right": [1] * 60}
    path = saved(real, tmp_path / "b", endings, right=real.ClassLabel(names=["0", "1"]))
    example = first(path, streaming, text="start", choices=["end 0", "end 1"], answer="right")
    assert (example["choices"], example["answer"]) == (["ran", "sat"], 1)


def test_conversations_scores_and_references(tmp_path: Path, real: Any, streaming: bool) -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    path = saved(real, tmp_path, {"messages": [turns] * 60})
    assert json.loads(first(path, streaming)["messages"]) == turns
    path = saved(real, tmp_path / "b", {"text": ["a"] * 60, "pair": ["b"] * 60, "score": [0.5] * 60})
    assert first(path, streaming)["score"] == 0.5
    path = saved(real, tmp_path / "c", {"source": ["a"] * 60, "target": [["A", "A2"]] * 60})
    assert first(path, streaming)["references"] == ["A", "A2"]


def test_pictures_are_decoded_by_qkv(tmp_path: Path, real: Any, streaming: bool) -> None:
    png = io.BytesIO()
    Image.new("RGB", (4, 2), (9, 8, 7)).save(png, "PNG")
    columns = {"image": [{"bytes": png.getvalue(), "path": None}] * 59 + [{"bytes": b"broken", "path": None}]}
    labels = real.ClassLabel(names=["cat", "dog"])
    path = saved(real, tmp_path, {**columns, "label": [0, 1] * 30}, image=real.Image(), label=labels)
    example = first(path, streaming)
    assert example["image"] == png.getvalue() and example["label"] == "cat"
    whole = Source.from_dict({"kind": "datasets", "path": path})
    task = ImageClassify(mean=(0.5,) * 3, std=(0.5,) * 3).resolve(
        whole, None, Patches(image=(2, 4), patch=(2, 2), channels=3)
    )
    assert task.classes == ("cat", "dog") and whole.open("train").labels == ["cat", "dog"] * 30
    random = RandomContext(np.random.default_rng(0), False)
    items = task.items([whole.open("train")[i] for i in (0, 59)], None, random)
    assert not isinstance(items[0], Skipped) and items[0].arrays["ids"].shape == (3, 2, 4)
    assert isinstance(items[1], Skipped) and "whose picture is" in items[1]


def test_sounds_need_no_other_library(tmp_path: Path, real: Any, streaming: bool) -> None:
    wave = np.sin(np.arange(800) / 5).astype(np.float32)
    columns = {"audio": [{"bytes": audio.encode(wave, 8000), "path": None}] * 60, "label": ["a", "b"] * 30}
    path = saved(real, tmp_path, columns, audio=real.Audio())
    example = first(path, streaming)
    assert example["rate"] == 8000 and np.abs(example["audio"] - wave).max() < 1e-3 and example["label"] == "a"


def test_columns_that_no_task_reads_are_listed(tmp_path: Path, real: Any, streaming: bool) -> None:
    path = saved(real, tmp_path, {"review": ["a"] * 60, "grade": [1] * 60})
    with pytest.raises(
        ValueError, match=r"data has the columns review, grade; name those to read, such as data\.text=review"
    ):
        first(path, streaming)
    with pytest.raises(ValueError, match=r"data has no column 'stars'; there is"):
        first(path, streaming, text="review", label="stars")
