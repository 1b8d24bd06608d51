from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qkv.data.pairs import Pairs
from qkv.data.sources import Counts, Skipped, order, read

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, lines: list[str]) -> str:
        data = "".join(f"{line}\n" for line in lines).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(tmp_path / name)

    return written


def entries(spec: Pairs, split: Any = "train") -> list[Any]:
    table = spec.table(split)
    return [table[i] for i in range(len(table))]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_two_files_with_files_for_every_split(write: Write, suffix: str) -> None:
    spec = Pairs(
        source=write(f"t.en{suffix}", ["a", " b "]), target=write(f"t.de{suffix}", ["A", "B"]),
        validation_source=write("v.en", ["c"]), validation_target=write("v.de", ["C"]),
        test_source=write("x.en", ["d"]), test_target=write("x.de", ["D"]),
    )  # fmt: skip
    assert entries(spec) == [{"source": "a", "target": "A"}, {"source": "b", "target": "B"}]
    assert entries(spec, "validation") == [{"source": "c", "target": "C"}]
    assert entries(spec, "test") == [{"source": "d", "target": "D"}]
    assert spec.notes() == ()


def test_unequal_files_name_both_counts(write: Write) -> None:
    spec = Pairs(source=write("a", ["x"] * 1200), target=write("b", ["y"] * 1199))
    with pytest.raises(ValueError, match=r"a' has 1,200 lines but '.*b' has 1,199"):
        spec.table("train")


def test_empty_sides_are_skipped_and_counted(write: Write) -> None:
    good = [f"s{i}" for i in range(10)]
    spec = Pairs(
        source=write("a", ["x", "", " ", *good]), target=write("b", ["", "y", "", *good]),
        validation_source=write("v", ["c"]), validation_target=write("w", ["C"]),
        test_source=write("v", ["c"]), test_target=write("w", ["C"]),
    )  # fmt: skip
    table, counts = spec.table("train"), Counts()
    assert len(read(table, order(table, 0, 99, None), counts)) == 10
    assert counts.skipped == {"with one side empty": 2, "with both sides empty": 1}


def test_the_tag_and_what_a_tokenizer_should_keep(write: Write) -> None:
    spec = Pairs(source=write("a", ["x"] * 9), target=write("b", list("ABCDEFGHI")), target_language="de", tag=True)
    assert spec.special == ("<de>",)
    assert next(spec.examples())["source"] == "<de> x"
    with pytest.raises(ValueError, match="target_language must be given"):
        Pairs.from_dict({"tag": True})


@pytest.mark.parametrize("name", ["p.tsv", "p.tsv.gz"])
def test_tsv(write: Write, name: str) -> None:
    path = write(name, ["en\tid\tde", "hello\t1\thallo", "alone", "hello\t2\t"])
    numbered = Pairs(path=path, validation_path=path, test_path=path, target_column=2)
    assert entries(numbered)[1:] == [
        {"source": "hello", "target": "hallo"}, Skipped("with one side missing"), Skipped("with one side empty")
    ]  # fmt: skip
    named = Pairs(path=path, validation_path=path, test_path=path, source_column="de", target_column="en")
    assert entries(named)[0] == {"source": "hallo", "target": "hello"} and len(entries(named)) == 3
    with pytest.raises(ValueError, match="no column 'dee'; did you mean 'de'"):
        named.replace(source_column="dee").table("train")


def test_jsonl(write: Write) -> None:
    lines = [json.dumps({"translation": {"en": "hello", "de": "hallo"}}), "", "{}", json.dumps({"translation": 3})]
    path = write("p.jsonl", lines)
    spec = Pairs(
        path=path, validation_path=path, test_path=path, source_column="translation.en", target_column="translation.de"
    )
    missing = Skipped("without a text 'translation.en'")
    assert entries(spec) == [{"source": "hello", "target": "hallo"}, Skipped("empty"), missing, missing]
    broken = write("q.jsonl", [*lines, "{oops"])
    with pytest.raises(ValueError, match=r"q\.jsonl', line 5, is not valid JSON"):
        entries(spec.replace(path=broken))


def test_what_is_given_wrongly(write: Write) -> None:
    with pytest.raises(ValueError, match="source is given without target"):
        Pairs.from_dict({"source": "a"})
    with pytest.raises(ValueError, match="not both"):
        Pairs.from_dict({"source": "a", "target": "b", "path": "c.tsv"})
    with pytest.raises(ValueError, match=r"no training data: give data\.source and data\.target"):
        Pairs().table("train")
    with pytest.raises(ValueError, match=r"neither \.tsv nor \.jsonl"):
        Pairs(path=write("a.csv", ["x"]), validation_path="v", test_path="t").table("train")
    with pytest.raises(ValueError, match="there is no file"):
        Pairs(source="nowhere.en", target="nowhere.de").table("train")


# -- holding out ----------------------------------------------------------------------------------------------------


def held_out(write: Write, n: int) -> Pairs:
    repeated = [i % n for i in range(2 * n)]
    return Pairs(source=write("a", [f"s{i}" for i in repeated]), target=write("b", [f"t{i}" for i in repeated]))


def sources(spec: Pairs, split: Any) -> set[str]:
    return {example["source"] for example in spec.examples(split)}


@pytest.mark.parametrize("n", [3, 10, 1000])
def test_held_out_splits_are_disjoint_and_complete(write: Write, n: int) -> None:
    spec = held_out(write, n)
    train, validation, test = (sources(spec, split) for split in ("train", "validation", "test"))
    assert not train & validation and not train & test and not validation & test
    assert train | validation | test == {f"s{i}" for i in range(n)}
    assert len(validation) == len(test) == max(1, n // 50)
    held = len(list(spec.examples("test")))
    assert held == len(test)  # each once, though it stands in the file twice
    said = f"held out of the training data by hash: {held:,} for validation and {held:,} for test"
    assert spec.notes() == (said,)


def test_held_out_beyond_the_scanned_part_is_not_trained_on(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.data.holdout._SCANNED", 500)
    spec = held_out(write, 400)  # the second half repeats the first
    assert not sources(spec, "train") & (sources(spec, "validation") | sources(spec, "test"))


def test_too_few_to_hold_out(write: Write) -> None:
    with pytest.raises(ValueError, match="only 2 different"):
        held_out(write, 2).table("train")


def test_a_file_given_for_one_split_leaves_the_other_to_be_held_out(write: Write) -> None:
    spec = held_out(write, 100).replace(validation_source=write("v.en", ["c"]), validation_target=write("v.de", ["C"]))
    assert sources(spec, "validation") == {"c"}
    assert len(sources(spec, "train")) == 98 and len(sources(spec, "test")) == 2
