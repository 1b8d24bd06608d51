"""Words with tags are told from texts with classes: in tables, and as lists in records, as the library datasets has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.guess.column import Column
from qkv.runs.recipes.guess.word_tags import tags_in
from qkv.runs.recipes.recipe import Recipe

ROWS: list[dict[str, Any]] = [
    {
        "id": i,
        "tokens": ["Ann", "met", "Bob", str(i)],
        "pos_tags": [1, 2, 1, 3],
        "ner_tags": ["B-PER", "O", "B-PER", "O"],
    }
    for i in range(40)
]


def test_a_tag_in_each_row_and_tags_in_each_cell_are_seen() -> None:
    rows = [Column("word", ["Ada", "in", "Oslo"] * 3), Column("tag", ["B-PER", "O", "B-LOC"] * 3)]
    said = tags_in(rows)
    assert said is not None and "tag for each word (B-LOC, B-PER, O), a word in each row" in said
    cells = [Column("text", ["Ada in Oslo", "in Oslo", "in"]), Column("tags", ["B-PER O B-LOC", "O B-LOC", "O"])]
    said = tags_in(cells)
    assert (
        said is not None
        and "a tag for each word of text (B-LOC, B-PER, O)" in said
        and "qkv train tag data.kind=columns" in said
    )


def test_classes_and_texts_are_no_tags() -> None:
    assert tags_in([Column("text", ["a b", "c d"]), Column("label", ["O", "A"])]) is None
    assert tags_in([Column("text", ["Ada in Oslo", "in"]), Column("tags", ["B-PER O", "O B-LOC O"])]) is None


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet"])
def test_lists_of_tags_are_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pandas.DataFrame(ROWS).to_parquet(path)
    else:
        path.write_text(json.dumps(ROWS) if name == "a.json" else "".join(f"{json.dumps(row)}\n" for row in ROWS))
    found = guess(path)
    assert found.recipe == "tag" and {"data.word=tokens", "data.tag=ner_tags"} <= set(found.settings)
    assert "pos_tags could be the tags too (data.tag)" in found.seen
    data = Recipe.load(found.recipe, found.settings).data
    tags = {(*example["words"][:3], *example["tags"]) for example in data.examples("train")}
    assert tags == {("Ann", "met", "Bob", "B-PER", "O", "B-PER", "O")}


def test_tags_that_are_numbers_and_lists_that_are_no_tags(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"words": row["tokens"], "tags": row["pos_tags"]}) + "\n" for row in ROWS))
    found = guess(path)
    assert "training.metric=accuracy" in found.settings and "the tags are numbers" in found.seen[1]
    path.write_text("".join(json.dumps({"words": row["tokens"], "sizes": [i, 1]}) + "\n" for i, row in enumerate(ROWS)))
    with pytest.raises(ValueError, match="values of words are lists or objects, which are not read"):
        guess(path)
