from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qkv.data.readers.parallel_text import Pairs
from qkv.data.source import Counts, Skipped, order, read

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
    numbered = Pairs(path=path, validation_path=path, test_path=path, source_column=0, target_column=2)
    assert entries(numbered) == [
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
    with pytest.raises(
        ValueError, match=r"neither \.tsv, \.csv, \.jsonl nor \.parquet by its name, .* no tab; give data\.format"
    ):
        Pairs(path=write("a.txt", ["x"]), validation_path="v", test_path="t").table("train")
    with pytest.raises(ValueError, match="has one column, and a pair has two"):
        Pairs(path=write("a.csv", ["x"]), validation_path="v", test_path="t").table("train")
    with pytest.raises(ValueError, match="there is no file"):
        Pairs(source="nowhere.en", target="nowhere.de").table("train")


# -- holding out ----------------------------------------------------------------------------------------------------


def held_out(write: Write, n: int) -> Pairs:
    repeated = [i % n for i in range(2 * n)]
    return Pairs(source=write("a", [f"s{i}" for i in repeated]), target=write("b", [f"t{i}" for i in repeated]))


def sources(spec: Pairs, split: Any) -> set[str]:
    return {example["source"] for example in spec.examples(split)}


@pytest.mark.parametrize("n", [3, 10, 1000, 16_000])
def test_held_out_splits_are_disjoint_and_complete(write: Write, n: int) -> None:
    spec = held_out(write, n)
    train, validation, test = (sources(spec, split) for split in ("train", "validation", "test"))
    assert not train & validation and not train & test and not validation & test
    assert train | validation | test == {f"s{i}" for i in range(n)}
    assert len(validation) == len(test) == {3: 1, 10: 1, 1000: 100, 16_000: 320}[n]
    held = len(list(spec.examples("test")))
    assert held == len(test)  # each once, though it stands in the file twice
    said = f"held out of the training data by hash: {held:,} for validation and {held:,} for test"
    rows = "rows equal to one of them are"  # the second of each pair of equal lines
    assert spec.notes() == (f"{said}; {2 * held:,} {rows} in no split",)


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
    assert len(sources(spec, "train")) == 90 and len(sources(spec, "test")) == 10


# -- tables ---------------------------------------------------------------------------------------------------------


def alone(path: str, **more: Any) -> Pairs:
    return Pairs(path=path, validation_path=path, test_path=path, **more)


def test_a_header_is_no_example_and_three_columns_are_named(write: Write) -> None:
    path = write("p.tsv", ["id\tenglish\tgerman", "1\thello\thallo"])
    with pytest.raises(
        ValueError, match=r"3 columns \(id, english, german\).*source_column=english data.target_column=german"
    ):
        alone(path).table("train")
    named = alone(path, source_column="english", target_column="german")
    assert entries(named) == [{"source": "hello", "target": "hallo"}]
    assert entries(alone(path, source_column=1, target_column=2)) == entries(named)
    two = write("q.tsv", ["English\tGerman", "hello\thallo", "a\tb\tc"])
    with pytest.raises(
        ValueError, match=r"q\.tsv' has 1 row with more cells than its header's 2: line 3 .*on_error=skip"
    ):
        alone(two).table("train")
    skipping = alone(two, on_error="skip")
    assert entries(skipping) == [{"source": "hello", "target": "hallo"}, Skipped("with more cells than columns")]
    assert any("is read as names, English, German" in note for note in skipping.notes())
    assert entries(alone(write("r.tsv", ["English\tGerman", "hello\thallo"]), header=False))[0] == {
        "source": "English",
        "target": "German",
    }
    with pytest.raises(ValueError, match="has no column 4: it has 3, numbered from 0"):
        alone(path, source_column=1, target_column=4).table("train")
    with pytest.raises(ValueError, match=r"data\.header=false says that .* number its columns"):
        named.replace(header=False).table("train")


def test_columns_called_source_and_target_are_these(write: Write) -> None:
    path = write("p.csv", ["id,target,source", '1,hallo,"hello, you"'])
    assert entries(alone(path)) == [{"source": "hello, you", "target": "hallo"}]


def test_other_names_and_encodings(tmp_path: Path, write: Write) -> None:
    assert entries(alone(write("p.txt", ["hello\thallo"]))) == [{"source": "hello", "target": "hallo"}]
    line = json.dumps({"source": "a", "target": "b"})
    assert entries(alone(write("q.txt", [line]), format="jsonl")) == [{"source": "a", "target": "b"}]
    (tmp_path / "l.tsv").write_bytes("schön\tnice\n".encode("latin-1"))
    assert entries(alone(str(tmp_path / "l.tsv"), encoding="latin-1")) == [{"source": "schön", "target": "nice"}]
    with pytest.raises(ValueError, match="there is no encoding 'latin-one'"):
        Pairs.from_dict({"encoding": "latin-one"})


# -- groups ---------------------------------------------------------------------------------------------------------


def test_all_translations_of_a_sentence_are_held_out_together(write: Write) -> None:
    several = [f"s{i}\tt{i}-{k}" for i in range(200) for k in range(5)]
    spec = Pairs(path=write("p.tsv", several))
    train, validation, test = (sources(spec, split) for split in ("train", "validation", "test"))
    assert not train & validation and not train & test and not validation & test
    assert len(list(spec.examples("test"))) == 5 * len(test) == 100


def test_a_source_that_most_pairs_share_stays_in_training(write: Write) -> None:
    same = [f"continue:\tt{i}" for i in range(300)]
    spec = Pairs(path=write("p.tsv", [*same, *(f"s{i}\tu{i}" for i in range(300))]))
    assert "continue:" in sources(spec, "train") and len(list(spec.examples("test"))) == 60


def test_one_source_for_all_is_drawn_by_the_pair_and_said(write: Write) -> None:
    spec = Pairs(path=write("p.tsv", [f"continue:\tt{i}" for i in range(300)]))
    assert len(list(spec.examples("test"))) == 30
    assert "too few differ in their first text" in spec.notes()[1]


def test_what_given_files_share_is_counted(write: Write) -> None:
    path = write("p.tsv", [f"s{i}\tt{i}" for i in range(100)])
    test = write("t.tsv", ["s1\tanother", "s2\tt2", "new\tneu"])
    spec = Pairs(path=path, validation_path=path, test_path=test)
    assert spec.notes()[1:] == (
        "1 of 1 files for validation are training files, too",
        "2 of 3 test examples share their first text with training examples",
    )


# -- what is damaged ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:skipped")
def test_what_is_damaged_is_refused_or_left_out_by_name(write: Write, tmp_path: Path) -> None:
    good = [json.dumps({"source": f"s{i}", "target": f"t{i}"}) for i in range(5)]
    bad = ['{"source": "\\ud800", "target": "x"}', "{oops", "[" * 100_000]
    path = write("p.jsonl", [*good, *bad])
    refused = alone(path)
    for i, said in (
        (5, r"line 6, has half of a character \(\\ud800\)"),
        (6, "line 7, is not valid JSON"),
        (7, "line 8, is n"),
    ):
        with pytest.raises(ValueError, match=said):
            refused.table("train")[i]
    skipping = alone(path, on_error="skip")
    with pytest.warns(UserWarning, match=r"skipped: '.*p\.jsonl', line 6, has half of a character"):
        found = entries(skipping)
    assert found[5:] == [Skipped("damaged")] * 3 and found[0] == {"source": "s0", "target": "t0"}
    (tmp_path / "l.tsv").write_bytes(b"a\tb\n" + "schön\tnice\n".encode("latin-1"))
    with pytest.warns(UserWarning, match="line 2, is not valid UTF-8"):
        assert entries(alone(str(tmp_path / "l.tsv"), on_error="skip"))[1] == Skipped("damaged")


def test_several_references_in_files(write: Write) -> None:
    spec = Pairs(
        source=write("t.en", ["a", "b"]), target=write("t.de", ["A", "B"]),
        validation_source=write("v.en", ["c"]), validation_target=write("v.de", ["C"]),
        test_source=write("x.en", ["d", "e"]), test_target=write("x.de", ["D", "E"]),
        test_references=(write("x2.de", ["D2", ""]), write("x3.de", ["D3", ""])),
    )  # fmt: skip
    assert entries(spec, "test") == [
        {"source": "d", "target": "D", "references": ["D", "D2", "D3"]},
        {"source": "e", "target": "E"},
    ]
    assert entries(spec, "validation") == [{"source": "c", "target": "C"}] and "references" not in entries(spec)[0]
    with pytest.raises(ValueError, match=r"x.en' has 2 lines but '.*short' has 1"):
        spec.replace(test_references=(write("short", ["D"]),)).table("test")
    with pytest.raises(ValueError, match="give test_source and test_target, too"):
        Pairs(path="a.tsv", test_references=("x",))


def test_several_references_in_columns(write: Write) -> None:
    train = write("t.tsv", ["source\ttarget", "a\tA"])
    test = write("x.tsv", ["source\ttarget\tother", "b\tB\tB2", "c\tC\t"])
    spec = Pairs(path=train, validation_path=train, test_path=test, reference_columns=("other",))
    assert entries(spec) == entries(spec, "validation") == [{"source": "a", "target": "A"}]
    assert entries(spec, "test") == [
        {"source": "b", "target": "B", "references": ["B", "B2"]},
        {"source": "c", "target": "C"},
    ]
    with pytest.raises(ValueError, match="has no column 'others'; did you mean 'other'"):
        spec.replace(reference_columns=("others",)).table("test")
    numbered = Pairs(
        path=test,
        validation_path=test,
        test_path=test,
        source_column=0,
        target_column=1,
        reference_columns=(2,),
        header=True,
    )
    assert entries(numbered, "test")[0]["references"] == ["B", "B2"]


def test_several_references_in_a_list(write: Write) -> None:
    path = write(
        "a.jsonl",
        [
            '{"source": "a", "target": ["A", "A2"]}',
            '{"source": "b", "target": ["B"]}',
            '{"source": "c", "target": []}',
            '{"source": "d", "target": ["D", 3]}',
            '{"source": ["e"], "target": "E"}',
        ],
    )
    assert entries(Pairs(path=path, validation_path=path, test_path=path)) == [
        {"source": "a", "target": "A", "references": ["A", "A2"]},
        {"source": "b", "target": "B"},
        Skipped("without a text 'target'"),
        Skipped("without a text 'target'"),
        Skipped("without a text 'source'"),
    ]


def test_another_separator(write: Write) -> None:
    lines = [f"line {i}, of many; Zeile {i}, von vielen" for i in range(50)]
    for name, sep in (("a.csv", "semicolon"), ("a.txt", ";"), ("a.tsv", ";")):
        path = write(name, lines)
        found = entries(Pairs(path=path, validation_path=path, test_path=path, sep=sep))
        assert found[7] == {"source": "line 7, of many", "target": "Zeile 7, von vielen"}


@pytest.mark.parametrize(("name", "sep"), [("a.tsv", "\t"), ("a.csv", ","), ("a.csv", ";")])
def test_the_column_names_again_between_pairs_are_no_pair(name: str, sep: str, tmp_path: Path) -> None:
    rows = [f"the house {i}{sep}das Haus {i}\n" for i in range(30)]
    names = f"english{sep}german\n"
    (tmp_path / name).write_text(names + "".join(rows) + names.replace(sep, f" {sep}") + "".join(rows))
    source = Pairs(path=str(tmp_path / name), validation_path=str(tmp_path / name), test_path=str(tmp_path / name))
    table = source.table("train")
    entries = [table[i] for i in range(len(table))]
    assert [entry for entry in entries if isinstance(entry, Skipped)] == ["with the column names again"]
    assert {entry["source"] for entry in entries if isinstance(entry, dict)} == {f"the house {i}" for i in range(30)}
