"""`python -m bench small-english`: books become passages, and passages a model with its card."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from bench.small_english import books, main, passages, plain, write_texts

import qkv


def test_a_text_is_plain() -> None:
    assert plain("The _old_ man\nsaid:  \u201cIt\u2019s late\u2014go.\u201d\n") == 'The old man said: "It\'s late--go."'
    assert plain('He stopped.\n " Then\n  he went') == 'He stopped." Then he went'
    assert plain("at 8 P.\n M.\n , they came") == "at 8 P. M., they came"
    assert plain("he!- I fear a well-known\n- man") == "he!--I fear a well-known --man"
    assert plain("the end\n* * *\nSource: http://x.org/1\nbegins") == "the end begins"


def test_passages_are_whole_sentences_in_their_order() -> None:
    text = 'One came. Two "ran off." "Three!" Four sat. e.g. five'
    assert passages(text, 12) == ['One came. Two "ran off."', '"Three!" Four sat. e.g. five']
    assert passages("One. Two.", 4) == ["One.", "Two."]
    assert " ".join(passages(text, 1)) == text


def test_the_end_of_every_book_is_held_out(tmp_path: Path) -> None:
    for name in "ab":
        sentence = "x" * 900
        book = " ".join(f"Number {name}{i} {sentence}." for i in range(100))
        (tmp_path / f"{name}.txt.gz").write_bytes(gzip.compress(book.encode()))
    (tmp_path / "SOURCE.txt").write_text("Where they are from.")
    found = write_texts(books(tmp_path), tmp_path / "texts")
    lines = {name: path.read_text().splitlines() for name, path in found.items()}
    assert {name: len(each) for name, each in lines.items()} == {"train": 192, "validation": 4, "test": 4}
    assert [line.split()[1] for line in lines["test"]] == ["a98", "a99", "b98", "b99"]


def test_a_folder_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="there is no text in"):
        books(tmp_path)


@pytest.mark.slow
def test_the_command_makes_a_model_with_its_card(tmp_path: Path) -> None:
    words = ("the", "a", "king", "queen", "saw", "old", "house", "and", "went", "home")
    sentences = (f"The {words[i % 10]} {words[i // 3 % 10]} {words[i * 7 % 10]} number {i}." for i in range(9000))
    (tmp_path / "book.txt").write_text("\n".join(sentences))
    small = ["tokenizer.vocab_size=300", "training.max_steps=3", "training.schedule=constant", "evaluation.examples=4"]
    out, work = tmp_path / "out", tmp_path / "work"
    assert main([str(tmp_path / "book.txt"), "--work", str(work), "--out", str(out), *small]) == 0
    assert {path.name for path in out.iterdir()} >= {"README.md", "training.yaml", "model.safetensors"}
    assert "(3 steps" not in (out / "README.md").read_text() and " 3 steps of" in (out / "README.md").read_text()
    assert qkv.load(out, "cpu").generate("The king", max_new_tokens=2, do_sample=False) is not None
