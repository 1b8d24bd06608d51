"""What a model was never trained on is told: words its tokenizer lacks, language tags no training text had."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from qkv.cli import main
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.data.tokenizers.tokenizer import train as train_tokenizer
from qkv.data.tokenizers.tokenizer_json import encoding_errors
from qkv.runs.inference.run import Run, load
from qkv.runs.inference.unknown_words import Unseen, unknown_tags, unknown_words, warn_of_inputs
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

PAIRS = [("the cat sat", "die Katze saß"), ("a dog ran", "ein Hund lief"), ("the dog sat", "der Hund saß")] * 20
SMALL = (
    *("model.d_model=16", "model.d_ff=32", "model.n_layers=1", "model.n_heads=2", "batching.tokens=256"),
    *("training.max_steps=2", "training.eval_every=2", "training.save_every=2", "training.metric=loss"),
    *("training.mode=min", "evaluation.examples=4", "evaluation.test_examples=4", "generation.max_new_tokens=4"),
)


def tsv(folder: Path) -> Path:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{a} {i}\t{b} {i}\n" for i, (a, b) in enumerate(PAIRS)))
    return path


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("unseen")
    data = (f"data.path={tsv(folder)}", "data.tag=true", "data.target_language=de", "tokenizer=word")
    train(Recipe.load("translate", [*data, *SMALL]), folder / "run", device="cpu")
    return load(folder / "run", "cpu")


def test_unknown_words_are_counted_and_named() -> None:
    word = train_tokenizer("word", ["the cat sat", "the dog ran"])
    said = unknown_words(word, ["the zebra sat", "a cat"])
    assert said is not None and said.startswith("2 of 5 words are unknown") and said.endswith("<unk>: 'zebra', 'a'")
    assert unknown_words(word, ["the cat ran"]) is None
    assert unknown_words(train_tokenizer("bpe", ["the cat"]), ["zebra ß 한"]) is None
    assert word.unknown([]) == (0, [])


def test_a_long_unknown_word_is_shortened() -> None:
    word = train_tokenizer("word", ["the cat sat"])
    said = unknown_words(word, ["z" * 100_000])
    assert said is not None and said.startswith("1 of 1 words is unknown") and len(said) < 300


@pytest.mark.parametrize("kind", ["wordpiece", "char", "unigram"])
def test_other_kinds_say_what_they_lack(kind: str) -> None:
    tokenizer = train_tokenizer(kind, ["the cat sat on the mat"] * 3)
    said = unknown_words(tokenizer, ["the 한 cat"])
    assert said is not None and "'한'" in said


def test_a_run_warns_of_what_it_never_saw(translator: Run) -> None:
    with pytest.warns(Unseen, match=r"1 of 4 words is unknown to the tokenizer and read as <unk>: 'zebra'"):
        translator.generate(["<de> the zebra sat"])
    with pytest.warns(Unseen, match=r"never saw the language tag <es> in training.* begin each text with one of <de>"):
        translator.generate(["<es> the cat sat"])
    with pytest.warns(Unseen, match=r"never saw texts without a language tag"):
        translator.score(["the cat sat"], ["die Katze saß"])


def test_each_unknown_word_is_warned_about_once(translator: Run) -> None:
    run = replace(translator)
    with pytest.warns(Unseen) as warned:
        run.outputs(["<de> the zebra sat", "<es> a lion sat"])
        run.outputs(["<de> the zebra sat"])
        run.score(["<es> a lion sat"], ["die Katze saß"])
    words, tags = (str(one.message) for one in warned)
    assert words.startswith("3 of 8 words are unknown") and words.endswith("'zebra', '<es>', 'lion'") and "<es>" in tags
    with pytest.warns(Unseen, match="2 of 4 words are unknown.*'tiger', 'zebra'$"):
        run.outputs(["<de> tiger zebra sat"])


def test_known_texts_are_tokenized_once(translator: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenized: list[str] = []

    def recorded(texts: Sequence[str]) -> AbstractContextManager[None]:
        tokenized.extend(texts)
        return encoding_errors(texts)

    monkeypatch.setattr("qkv.data.tokenizers.tokenizer.encoding_errors", recorded)
    texts = ["<de> the cat sat", "<de> the dog ran"]
    translator.outputs(texts)
    assert tokenized == texts
    tokenized.clear()
    translator.embed(texts)
    assert tokenized == texts


@pytest.mark.filterwarnings("error")
def test_a_run_says_nothing_of_what_it_knows(translator: Run) -> None:
    translator.generate(["<de> the cat sat", ""])
    translator.stream("<de> the dog ran", lambda piece: None, translator.settings(num_beams=1))


def test_a_translator_without_tags_warns_of_any(trained: Path) -> None:
    run = load(trained, "cpu")
    said = unknown_tags(run, ["<es> 1 2"])
    assert said is not None and "it was trained without language tags" in said
    assert unknown_tags(run, ["1 2 3"]) is None


def test_the_command_line_says_it_in_a_sentence(translator: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", str(translator.path), "<es> the cat sat"]) == 0
    said = capfd.readouterr().err
    assert (
        "qkv: warning: the model never saw the language tag <es>" in said and "Unseen" not in said and ".py" not in said
    )


def test_training_says_how_much_of_the_validation_split_is_unknown(tmp_path: Path) -> None:
    from rich.console import Console

    held = tmp_path / "held.tsv"
    held.write_text("the zebra sat\tdas Zebra saß\n")
    data = (f"data.path={tsv(tmp_path)}", f"data.validation_path={held}", "tokenizer=word")
    console = Console(record=True, width=200, quiet=False, file=(tmp_path / "log").open("w"))
    train(Recipe.load("translate", [*data, *SMALL]), tmp_path / "run", device="cpu", console=console)
    assert "3 of 6 words in the 2 texts of the validation split are unknown" in console.export_text()


def test_a_tokenizer_without_an_unknown_token_knows_all() -> None:
    tokenizer = Tokenizer.from_json(train_tokenizer("byte", ["a"]).without("unk").to_json())
    assert tokenizer.unknown(["한"]) == (0, [])


def test_inputs_of_predict_are_warned_about_once(translator: Run) -> None:
    translator = replace(translator)
    with pytest.warns(Unseen, match="unknown to the tokenizer.*: 'zebra'"):
        warn_of_inputs(translator, ["the zebra sat"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_inputs(translator, ["the zebra and the gnu sat"])


def test_names_of_files_are_not_unknown_words(translator: Run, tmp_path: Path) -> None:
    picture = tmp_path / "zebra.png"
    picture.touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_inputs(replace(translator), [str(picture), f"the cat\t{picture}"])
