"""A tokenizer for sources beside one for targets: trained, saved, loaded and used as two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from qkv.cli import main
from qkv.data.loader.stream import stream
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import preview
from qkv.runs.train.tokenizer import make
from qkv.runs.train.train import train

DIGITS, WORDS = "0123456789", ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
SETTINGS = (
    *("tokenizer=word", "source_tokenizer=char", "model.d_model=32", "model.d_ff=64", "model.n_layers=1"),
    *("model.n_heads=2", "model.dropout=0", "batching.tokens=512", "training.max_steps=150", "training.eval_every=150"),
    *("training.save_every=50", "training.metric=loss", "training.mode=min", "training.optimizer.lr=0.005"),
    *(
        "training.schedule=constant",
        "evaluation.test_examples=20",
        "evaluation.examples=4",
        "generation.max_new_tokens=6",
    ),
)


def data(folder: Path) -> str:
    """Numbers, and their digits in words: the two sides have no token in common."""
    path = folder / "numbers.tsv"
    numbers = [f"{(i * 7919) % 1000:03d}" for i in range(600)]
    path.write_text("".join(f"{n}\t{' '.join(WORDS[int(d)] for d in n)} Ende\n" for n in dict.fromkeys(numbers)))
    return f"data.path={path}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    train(Recipe.load("translate", [data(folder), *SETTINGS]), folder / "run", device="cpu")
    return folder / "run"


def test_each_side_has_its_own_vocabulary_and_table(trained: Path) -> None:
    run = load(trained, "cpu")
    assert run.tokenizer is not None
    sources, targets = run.tokenizer.sources, run.tokenizer.targets
    assert (sources.kind, targets.kind) == ("char", "word") and sources.sources is sources
    assert {sources.id(digit) for digit in DIGITS} and {targets.id(word) for word in WORDS}
    assert targets.raw.token_to_id("7") is None and sources.raw.token_to_id("eins") is None
    spec = run.model.spec
    assert (spec.source_vocab_size, spec.vocab_size) == (sources.vocab_size, targets.vocab_size)
    assert sources.vocab_size != targets.vocab_size and not spec.tie_embeddings
    assert run.recipe is not None and run.recipe == Recipe.load(trained)


@pytest.mark.filterwarnings("error::qkv.runs.inference.unknown_words.Unseen")
def test_a_run_translates_and_scores_by_both(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = load(trained, "cpu")
    asked = ["271", "803", "459"]
    made = [str(text).split() for text in run.generate(asked)]
    assert all(len(words) == 4 and words[3] == "Ende" for words in made), made
    right = sum(
        word == WORDS[int(digit)]
        for text, words in zip(asked, made, strict=True)
        for digit, word in zip(text, words[:3], strict=True)
    )
    assert right >= 7, made
    true, false = run.score(["271", "271"], ["zwei sieben eins Ende", "neun null null Ende"])
    assert true.log_likelihood > false.log_likelihood and true.tokens[:3] == ("zwei", "sieben", "eins")
    with torch.inference_mode():
        assert len(run.embed(["271"], "none")[0]) == 4  # three characters and the end
    assert main(["eval", str(trained), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["chrf"] > 60


def test_rows_of_training_show_each_side_by_its_own(trained: Path) -> None:
    row = preview(Recipe.load(trained), trained).rows[0]
    assert "".join(row.source[:-1]).isdigit() and set(row.label[:-2]) <= set(WORDS)  # type: ignore[union-attr]


def test_a_run_continues_with_both(trained: Path, tmp_path: Path) -> None:
    settings = [data(tmp_path), *SETTINGS, "training.max_steps=4", "training.save_every=2", "training.eval_every=2"]
    train(Recipe.load("translate", settings), tmp_path / "run", device="cpu")
    before = (tmp_path / "run/tokenizer.json").read_text()
    more = Recipe.load("translate", [*settings, "training.max_steps=6"])
    assert train(more, tmp_path / "run", resume=True, device="cpu").outcome.state.step == 6
    assert (tmp_path / "run/tokenizer.json").read_text() == before
    train(Recipe.load(tmp_path / "run", ["training.max_steps=8"]), tmp_path / "run", resume=True, device="cpu")


@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_sources_are_split_by_chance_where_theirs_are(dropout: float, tmp_path: Path) -> None:
    """And targets are not, whose tokenizer has no dropout."""
    subwords = f"source_tokenizer={{kind: bpe, vocab_size: 300, dropout: {dropout}}}"
    recipe = Recipe.load("translate", [data(tmp_path), *SETTINGS, subwords])
    tokenizer = make(recipe)
    assert tokenizer is not None
    with stream(recipe.data, tokenizer, recipe.batching.replace(workers=0), seq2seq=True) as batches:
        batch = next(batches)
    read, written = (batch.inputs[name].valid.sum(-1) for name in ("layout", "target_layout"))
    plain = [len(tokenizer.sources.encode(f"{i:03d}")) for i in range(1000)]
    assert (read.float().mean() > 1.2 + sum(plain) / len(plain)) == (dropout > 0)
    assert set(written.tolist()) == {5}


def test_the_command_line_shows_both(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokenizer", "info", str(trained)]) == 0
    assert "separate tokenizer for sources: char" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model=gpt2", "objective=next-token"], "needs an encoder–decoder"),
        (["model.replace={tie_embeddings: true}"], "can't share an embedding"),
        (["tokenizer=null"], "with a tokenizer for targets"),
    ],
)
def test_where_two_make_no_sense(settings: list[str], said: str, tmp_path: Path) -> None:
    given = [s for s in SETTINGS if not (settings[0].startswith("model=") and s.startswith("model."))]
    with pytest.raises(ValueError, match=said):
        train(Recipe.load("translate", [data(tmp_path), *given, *settings]), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_pickled_pair_is_the_same_pair(trained: Path) -> None:
    import pickle

    tokenizer = Tokenizer.load(trained)
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.sources.encode("27") == tokenizer.sources.encode("27") and again.to_json() == tokenizer.to_json()
