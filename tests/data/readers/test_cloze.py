"""Questions made of a text's own sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.data.readers.cloze import Cloze
from qkv.data.source import Skipped

LINE = "The river Loka runs through Meri City in the north. It was bridged by Ann Tor in 1872 , at great cost. Rain. "


@pytest.fixture
def source(tmp_path: Path) -> Cloze:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{LINE * 3}Number {n} of them has seven words now.\n" for n in range(60)) + "Too short.\n")
    return Cloze(path=str(path), longest=160)


def test_an_answer_is_a_stretch_of_the_context_that_the_question_lacks(source: Cloze) -> None:
    found = list(source.examples("train"))
    assert len(found) > 40
    for one in found:
        (answer,), (start,) = one["answers"], one["starts"]
        assert one["context"][start : start + len(answer)] == answer != ""
        assert len(one["context"]) <= 160 and one["question"].endswith("?")
        assert not one["context"].startswith(answer)
    assert {"1872", "Ann Tor", "Meri City"} & {one["answers"][0] for one in found}


def test_each_epoch_asks_anew_and_what_is_held_out_stays(source: Cloze) -> None:
    asked = [[one["question"] for one in source.examples("train", epoch=epoch, shuffle=False)] for epoch in (0, 1, 0)]
    assert asked[0] == asked[2] != asked[1]
    assert list(source.examples("test", epoch=0)) == list(source.examples("test", epoch=5))


def test_a_text_without_a_sentence_is_skipped(source: Cloze) -> None:
    table = source.table("train")
    assert Skipped("without a sentence to ask about") in [table[i] for i in range(len(table))]
