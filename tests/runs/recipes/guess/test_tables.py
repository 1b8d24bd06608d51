"""What is guessed for the columns of a table."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from guessable_files import reviews_csv, texts, write

from qkv.data.source import SPLITS
from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.recipe import Recipe


@pytest.mark.parametrize("header", ["text,text,label", ",,label"])
def test_columns_whose_names_are_missing_or_equal_are_numbered(header: str, tmp_path: Path) -> None:
    rows = (f"{text},{text},{'good' if i % 3 else 'bad'}\n" for i, text in enumerate(texts(200)))
    found = guess(write(tmp_path / "x.csv", header + "\n" + "".join(rows)))
    assert {"data.text=0", "data.label=2", "data.header=true"} <= set(found.settings)
    data = Recipe.load(found.recipe, found.settings).data
    assert {example["label"] for example in data.examples("train")} == {"good", "bad"}


def test_the_index_of_a_data_frame_is_no_class_and_columns_keep_their_names(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"review": texts(200), "stars": [1 + 4 * (i % 2) for i in range(200)]})
    for name, table in (("a.csv", frame), ("b.csv", frame.set_index(pandas.Index([i // 100 for i in range(200)])))):
        table.to_csv(tmp_path / name)
        found = guess(tmp_path / name)
        assert {"data.text=review", "data.label=stars"} <= set(found.settings)
        assert "(no name) ('0'), review (" in found.seen[0] and found.seen[1].startswith("stars is the class")
        assert next(Recipe.load(found.recipe, [*found.settings, "data.label=stars"]).data.examples("train"))


def test_the_decision_on_a_header_is_seen_and_overruled(tmp_path: Path) -> None:
    path = reviews_csv(tmp_path)
    assert any(
        "read as names, id, text, sentiment" in line and "data.header=false" in line for line in guess(path).seen
    )
    found = guess(path, settings=["data.header=false"])
    assert {"data.text=1", "data.label=2"} <= set(found.settings)
    bare = write(tmp_path / "bare.csv", path.read_text().partition("\n")[2])
    found = guess(bare)
    assert any("read as data" in line and "data.header=true" in line for line in found.seen)
    assert {"data.text=1", "data.label=2"} <= set(found.settings)


def test_why_no_row_of_a_table_can_be_read_is_said(tmp_path: Path) -> None:
    rows = "".join(f'"a \\"text", {i}",x\n' for i in range(40))
    with pytest.raises(ValueError, match=r"no row can be read \(.*line 2, is not valid CSV"):
        guess(write(tmp_path / "a.csv", f"text,label\n{rows}"))


def test_several_labels_in_a_cell_and_other_columns_of_classes_are_said(tmp_path: Path) -> None:
    sets = ("red;blue", "red;green", "green;blue", "red")
    rows = [f"{text},{sets[i % 4]},{i % 2}" for i, text in enumerate(texts(200))]
    found = guess(write(tmp_path / "x.csv", "review,colors,rude\n" + "\n".join(rows) + "\n"))
    seen = " ".join(found.seen)
    assert "data.label=rude" in found.settings
    assert "colors could be the class too, and is not used (data.label=colors chooses it)" in seen
    named = guess(write(tmp_path / "y.csv", "review,labels\n" + "\n".join(row[:-2] for row in rows) + "\n"))
    assert "3 classes look like several labels with ';' between them, such as 'red;" in " ".join(named.seen)
    assert "could be the class too" not in " ".join(named.seen)


WORDS = ("Ada met Ben", "O B-PER O", "Oslo is far", "B-LOC O O")


@pytest.mark.parametrize("distinct", [False, True])
def test_tags_of_words_are_no_classes_of_texts(distinct: bool, tmp_path: Path) -> None:
    each = [
        f"w{i} in {WORDS[2 * (i % 2)]},O O {WORDS[2 * (i % 2) + 1]}{' O' * (i if distinct else 0)}" for i in range(60)
    ]
    each = [f"{row.split(',')[0]}{' x' * (i if distinct else 0)},{row.split(',')[1]}" for i, row in enumerate(each)]
    with pytest.raises(
        ValueError, match=r"tags holds a tag for each word of sentence \(B-LOC, B-PER, O\); write one word"
    ):
        guess(write(tmp_path / "x.csv", "sentence,tags\n" + "\n".join(each) + "\n"))
    one = [f"{'Sentence: ' + str(i) if not i % 3 else ''},word{i},{('O', 'B-PER', 'I-PER')[i % 3]}" for i in range(90)]
    with pytest.raises(ValueError, match=r"Tag holds a tag for each word \(B-PER, I-PER, O\), a word in each row"):
        guess(write(tmp_path / "y.csv", "Sentence #,Word,Tag\n" + "\n".join(one) + "\n"))
    blood = [f"{text},{('A', 'B', 'O', 'AB')[i % 4]}" for i, text in enumerate(texts(80))]
    assert guess(write(tmp_path / "z.csv", "note,group\n" + "\n".join(blood) + "\n")).recipe == "classify"


@pytest.mark.parametrize("header", ["", "category,page,body\n"])
def test_addresses_and_ids_are_no_texts_beside_texts(header: str, tmp_path: Path) -> None:
    kinds = ("https://x.org/{}", "www.x.org/{}", "me{}@x.org", "5f3a9c{:04x}-00ab")
    for kind in kinds:
        rows = [f"{('good', 'bad')[i % 2]},{kind.format(i)},{text}\n" for i, text in enumerate(texts(90))]
        found = guess(write(tmp_path / "x.csv", header + "".join(rows)))
        body, page = ("body", "page") if header else ("2", "1")
        assert f"data.text={body}" in found.settings and not any("data.pair" in one for one in found.settings)
        assert f"{page} is not used: its values are addresses or ids" in found.seen
    alone = guess(
        write(tmp_path / "y.csv", "where,label\n" + "".join(f"https://x.org/{i},{i % 2}\n" for i in range(90)))
    )
    assert {"data.text=where", "data.label=label"} <= set(alone.settings)


def test_the_class_is_rather_a_column_without_gaps(tmp_path: Path) -> None:
    rows = [f"{('a', '', 'b')[i % 3]},{text},{i % 4}\n" for i, text in enumerate(texts(120))]
    found = guess(write(tmp_path / "x.csv", "note,body,grade\n" + "".join(rows)))
    assert "data.label=grade" in found.settings and any("data.label=note chooses it" in one for one in found.seen)


def test_ids_alone_are_no_series(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither pairs, labels, scores nor numbers"):
        guess(write(tmp_path / "x.csv", "id\n" + "".join(f"{i}\n" for i in range(90))))
    found = guess(write(tmp_path / "y.csv", "load\n" + "".join(f"{i % 7}.5\n" for i in range(90))))
    assert found.recipe == "forecast"


@pytest.mark.parametrize(("name", "step"), [("", 1), ("tweet_id", 7), ("PassengerId", 3)])
def test_numbers_of_rows_are_no_score(name: str, step: int, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"text": "words number {i}", "{name or "n"}": {step * i}}}\n' for i in range(40)))
    found = guess(path)
    assert found.recipe == "lm" and any(f"{name or 'n'} is not used: its values" in said for said in found.seen)


def test_a_column_with_the_split_of_each_row_is_obeyed_or_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"words number {i},{'a' if i % 2 else 'b'},{'Train' if i < 30 else 'test'}" for i in range(40)]
    path.write_text("\n".join(["text,label,subset", *rows]))
    found = guess(path)
    assert "subset tells the split of each row (test, train); data.split=null reads all rows for training" in found.seen
    data = Recipe.load(found.recipe, found.settings).data
    tables = [data.table(split) for split in SPLITS]
    read = [[e["text"] for e in map(table.__getitem__, range(len(table))) if e is not None] for table in tables]
    assert read[2] == [f"words number {i}" for i in range(30, 40)]
    assert sorted(read[0] + read[1]) == sorted(f"words number {i}" for i in range(30)) and read[1]
    path.write_text("\n".join(["text,subset", *(row.replace(",a", "").replace(",b", "") for row in rows)]))
    found = guess(path)
    assert found.recipe == "lm" and any("(test, train), and is not read: training takes" in said for said in found.seen)


@pytest.mark.parametrize("names", ["anchor,positive,negative", "query,pos"])
def test_triples_are_for_embedders(names: str, tmp_path: Path) -> None:
    path, width = tmp_path / "t.csv", names.count(",") + 1
    cells = (",".join(f"word {place} of text {i}" for place in range(width)) for i in range(40))
    path.write_text("\n".join([names, *cells]) + "\n")
    found = guess(path)
    text, pair = names.split(",")[:2]
    assert found.recipe == "similarity" and "objective=contrastive" in found.settings
    assert {f"data.text={text}", f"data.pair={pair}"} <= set(found.settings)
    assert len(names) < 20 or "of 3 columns of text the first two are used, and not negative" in found.seen
    Recipe.load(found.recipe, [*found.settings])


def test_a_class_that_compares_two_columns_is_told_if_one_of_them_is_not_read(tmp_path: Path) -> None:
    rows = [(f"question {i}", f"first answer {i}", f"other answer {i}", "ab"[i % 2]) for i in range(60)]
    frame = pandas.DataFrame(rows, columns=["prompt", "response_a", "response_b", "winner"])
    frame.to_csv(tmp_path / "three.csv", index=False)
    frame.drop(columns="prompt").to_csv(tmp_path / "two.csv", index=False)
    said = "if winner tells which of response_a and response_b is better, this learns it without reading both"
    assert any(one.startswith(said) for one in guess(tmp_path / "three.csv").seen)
    assert not any(said in one for one in guess(tmp_path / "two.csv").seen)
