"""Examples passed from Python: every form of rows gives the same examples, known again by their fingerprint."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from qkv.data.memory import Memory
from qkv.data.source import Counts, Skipped, Source, read

PAIRS = [{"source": f"{n} cats", "target": f"{n} Katzen"} for n in range(30)]


def examples(source: Source, split: Any = "train") -> list[dict[str, Any]]:
    return list(source.examples(split, shuffle=False))


def pandas_frame(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows)


def polars_frame(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("polars").DataFrame(rows)


def dataset(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("datasets").Dataset.from_list(rows)


def frame_like_polars(rows: list[dict[str, Any]]) -> Any:
    class Frame:
        def to_dicts(self) -> list[dict[str, Any]]:
            return rows

    return Frame()


@pytest.mark.parametrize("form", [list, iter, pandas_frame, polars_frame, frame_like_polars, dataset])
def test_every_form_of_rows_is_the_same_data(form: Callable[[Any], Any]) -> None:
    expected = Memory.of(PAIRS)
    source = Memory.of(form(PAIRS))
    assert source == expected and source.train == 30
    assert examples(source) == examples(expected) and examples(source)[0]["where"].startswith("row ")
    assert sum(len(examples(source, split)) for split in ("train", "validation", "test")) == 30


def test_tuples_texts_and_columns_become_fields() -> None:
    pairs = [tuple(row.values()) for row in PAIRS]
    assert Memory.of(pairs) == Memory.of(PAIRS)
    named = [{"translation": {"en": a, "de": b}, "id": n} for n, (a, b) in enumerate(pairs)]
    columns = {"source": "translation.en", "target": "translation.de"}
    assert Memory.of(named, columns=columns) == Memory.of(PAIRS)
    assert examples(Memory.of(["one text", "another"], ["a third"]), "validation")[0]["text"] == "a third"
    labelled = Memory.of([("good", True), ("bad", np.int64(0))], columns={"text": "text", "label": "label"})
    assert [labelled.open("train")[i]["label"] for i in range(2)] == ["true", "0"]  # type: ignore[index]
    with pytest.raises(ValueError, match=r"row 0 has no column 'sorce'; did you mean 'source'"):
        Memory.of(PAIRS, columns={"source": "sorce", "target": "target"})
    with pytest.raises(ValueError, match="row 0 has 3 values, and the fields are source, target"):
        Memory.of([("a", "b", "c")])
    with pytest.raises(ValueError, match="row 0 is a int; rows are dictionaries, tuples or texts"):
        Memory.of([1])
    frame = pytest.importorskip("pandas").DataFrame([["a", "b", "c"]], columns=["text", "label", "text"])
    with pytest.raises(ValueError, match="the data frame has 2 columns 'text'; rename one"):
        Memory.of(frame)
    with pytest.raises(ValueError, match="there are no training rows"):
        Memory.of([])
    with pytest.raises(ValueError, match="random access, a path, or a source, not int"):
        Memory.of(3)
    with pytest.raises(ValueError, match="the keys train, validation and test, not train, dve"):
        Memory.of({"train": PAIRS, "dve": PAIRS})


def test_splits_are_those_given_and_the_rest_is_held_out() -> None:
    given = Memory.of({"train": PAIRS, "dev": PAIRS[:3]})
    assert given == Memory.of(PAIRS, PAIRS[:3]) and (given.validation, given.test) == (3, 0)
    assert [e["source"] for e in examples(given, "validation")] == ["0 cats", "1 cats", "2 cats"]
    held = examples(given, "test")
    assert held and not {e["source"] for e in held} & {e["source"] for e in examples(given)}


def test_rows_without_a_text_are_skipped_and_counted() -> None:
    source = Memory.of(
        [*PAIRS, {"source": "x", "target": None}, {"source": " ", "target": ""}, {"source": 3, "target": ""}]
    )
    counts = Counts()
    read(source.open("train"), range(30, 33), counts)
    assert counts.skipped == {"with one side empty": 1, "with both sides empty": 1, "whose source is no text": 1}


def test_classes_of_a_dataset_have_their_names() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["bad", "good"]),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"])),
        }
    )
    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0], "tags": [[0, 1], []]}, features=features)
    first = Memory.of(datasets.DatasetDict(train=rows, validation=rows)).first
    assert not isinstance(first, Skipped) and first["label"] == "good" and first["tags"] == ["O", "B-X"]


def test_pictures_conversations_and_answers_have_the_form_that_tasks_read() -> None:
    image = pytest.importorskip("PIL.Image")
    colored = Memory.of([{"image": image.new("RGB", (4, 2), (9, 8, 7)), "label": 1}]).first
    assert not isinstance(colored, Skipped) and colored["image"].shape == (3, 2, 4) and colored["image"][0, 0, 0] == 9
    chat = [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}]
    assert not isinstance(first := Memory.of(chat).first, Skipped) and first["text"] == "hi\nyes"
    squad = {"question": "who?", "context": "Ann did", "answers": {"text": ["Ann"], "answer_start": [0]}}
    first = Memory.of([squad]).first
    assert not isinstance(first, Skipped) and (first["answers"], first["starts"]) == (("Ann",), (0,))
    first = Memory.of([{"words": ["a", "b"], "tags": ["O", "O"]}]).first
    assert not isinstance(first, Skipped) and first["text"] == "a b"


def test_the_json_form_finds_its_rows_while_they_are_in_use_and_says_what_is_missing() -> None:
    source = Memory.of([{"text": f"{n} unlike the others"} for n in range(5)])
    saved = source.to_dict()
    assert set(saved) == {"kind", "fingerprint", "train", "validation", "test", "missing"}
    again = Source.from_dict(saved)
    assert again == source and examples(again) == examples(source)
    assert examples(pickle.loads(pickle.dumps(source))) == examples(source)
    elsewhere = Source.from_dict({**saved, "fingerprint": 64 * "0"})
    with pytest.raises(ValueError, match=r"\(5 training rows, fingerprint 0{8}\) were passed from Python and are not"):
        elsewhere.table("train")


def test_the_fingerprint_is_of_every_row() -> None:
    assert Memory.of(PAIRS).fingerprint != Memory.of([*PAIRS[:-1], {"source": "29 cats", "target": "x"}]).fingerprint
    pictures = [{"image": np.full((1, 2, 2), n, np.uint8), "label": "a"} for n in range(3)]
    assert Memory.of(pictures).fingerprint != Memory.of(pictures[::-1]).fingerprint
