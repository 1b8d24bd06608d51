"""Tables with tags of words are told from tables with classes of texts."""

from __future__ import annotations

from qkv.runs.recipes.guess.column import Column
from qkv.runs.recipes.guess.word_tags import tags_in


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
