"""Settings without an effect beside a trained model are told."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import qkv
from qkv.core import yamls
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import Recipe


def test_settings_of_a_tokenizer_beside_a_trained_model_have_no_effect() -> None:
    with pytest.warns(UserWarning, match=r"tokenizer\.vocab_size has no effect: a trained model keeps its tokenizer"):
        Recipe.load("classify", ["model=small-english", "tokenizer.vocab_size=50"])
    with pytest.warns(UserWarning, match=r"^tokenizer has no effect"):
        Recipe.load("classify", ["tokenizer=char", "model=small-english"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Recipe.load("classify", ["model=small-english"])
        Recipe.load("classify", ["tokenizer=char"])
        Recipe.load("chat", ["model=small-english", "tokenizer.special=[<a>]", "tokenizer.chat_template=x"])


def test_special_tokens_and_templates_beside_a_trained_model_that_has_its_own_have_no_effect(tmp_path: Path) -> None:
    directory = str(tmp_path / "model")
    qkv.load("small-english", device="cpu").save(directory)
    (tmp_path / "model" / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    for settings in (["tokenizer.chat_template=x"], ["tokenizer={kind: bpe, chat_template: x}"]):
        said = r"tokenizer\.chat_template has no effect: the tokenizer of .* has a chat template, which is used"
        with pytest.warns(UserWarning, match=said):
            Recipe.load("chat", [f"model={directory}", *settings])
    with pytest.warns(UserWarning, match=r"special has no effect: the tokenizer of .* has a chat template"):
        Recipe.load("chat", [f"model={directory}", "tokenizer.special=[<a>]"])
    with pytest.warns(UserWarning, match=r"special has no effect: .* with tokenizer.chat_template alone"):
        Recipe.load("lm", ["model=small-english", "tokenizer.special=[<a>]"])


def test_a_file_that_names_a_trained_model_and_settings_of_a_tokenizer_is_told(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    made = yamls.load(packaged()["lm"], name="lm") | {"model": {"directory": "small-english"}}
    own.write_text(yamls.dump(made))
    with pytest.warns(UserWarning, match=r"^tokenizer has no effect: a trained model keeps its tokenizer"):
        Recipe.load(own)
