"""Kept tokenizers: the same as trained ones, never of other settings or code, and never a damaged file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from qkv.cli import train as command
from qkv.data import ahead
from qkv.data.source import Source
from qkv.data.synthetic.copy_reverse_sort import Reverse
from qkv.data.synthetic.localise import Localise
from qkv.data.tokenizers.from_file import FromFile
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train import kept_tokenizer
from qkv.runs.train.kept_tokenizer import is_kept, kept_or_trained
from qkv.runs.train.tokenizer import make

SETTINGS = ["data.train=100", "data.languages=[de]", "data.domains=[time]", "tokenizer.vocab_size=90"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path))
    return tmp_path


def never() -> Tokenizer:
    raise AssertionError("it was trained again")


def test_a_kept_tokenizer_is_the_trained_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe.load("localise", SETTINGS)
    first = make(recipe)
    (file,) = folder.iterdir()
    monkeypatch.setattr("qkv.runs.train.tokenizer.train", lambda *_, **__: never())
    second = make(recipe)
    assert first is not None and second is not None and first.to_json() == second.to_json()
    texts = list(recipe.data.texts("train"))[:100]
    assert first.encode_batch(texts) == second.encode_batch(texts)
    begun: list[Source] = []
    monkeypatch.setattr(ahead, "begin", begun.append)
    command._draw_ahead("localise", SETTINGS)
    assert not begun  # its texts are not needed
    command._draw_ahead("localise", [*SETTINGS, "tokenizer.vocab_size=91"])
    assert begun == [recipe.data]
    content = file.read_bytes()
    file.write_bytes(content.replace(b"<unk>", b"<unj>"))
    with pytest.raises(AssertionError, match="trained again"):
        make(recipe)


def test_a_kept_tokenizer_is_of_one_source_spec_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    source, spec = Localise(languages=("de",), domains=("time",)), BPE(vocab_size=300)
    kept_or_trained(source, spec, _small)
    assert is_kept(source, spec) and kept_or_trained(source, spec, never).to_json() == _small().to_json()
    assert not is_kept(source.replace(train=301), spec)
    assert not is_kept(source, spec.replace(vocab_size=301))
    monkeypatch.setattr(kept_tokenizer, "_code", lambda: "other code")
    assert not is_kept(source, spec)


class Whispered(Localise, kind="whispered"):
    """A source whose code is not part of `qkv.data`."""


@pytest.mark.parametrize(
    ("source", "spec"),
    [
        (Reverse(train=20), BPE()),  # which takes no time
        (Whispered(languages=("de",), domains=("time",)), BPE()),
        (Localise(languages=("de",), domains=("time",)), FromFile(path="tokenizer.json")),
    ],
)
def test_what_depends_on_more_than_the_key_is_not_kept(source: Source, spec: TokenizerSpec, folder: Path) -> None:
    kept_or_trained(source, spec, _small)
    assert not is_kept(source, spec) and not list(folder.iterdir())


def test_without_a_usable_folder_it_is_trained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("QKV_CACHE", str(folder / "file" / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(folder / "file"))
    source = Localise(languages=("de",), domains=("time",))
    assert kept_or_trained(source, BPE(), _small).to_json() == _small().to_json()
    assert not is_kept(source, BPE())


@pytest.mark.slow  # another process
def test_looking_for_it_does_not_import_pytorch() -> None:
    """The process that draws the texts starts before PyTorch is imported."""
    code = "import sys, qkv.runs.train.kept_tokenizer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _small() -> Tokenizer:
    return train(BPE(vocab_size=300), ["a few words"])
