"""Patching between two texts: the panel of a translator and of a language model, and texts that don't fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import run_untrained
import torch

import qkv
from qkv.cli import main
from qkv.nn.activations import Zero
from qkv.nn.models.heads.language_model import LanguageModel
from qkv.runs.inference.look.patching import patching_panel
from qkv.runs.inference.run import Run


def test_patching_a_translator_finds_the_word_that_differs(trained: Path):
    run = qkv.load(trained, "cpu")
    panel = patching_panel(run, "b a c", "b a d", target="c a b")
    assert panel["title"] == "Activation patching" and panel["rows"] == ["layer 0"]
    assert [" | " in column for column in panel["columns"]].count(True) == 1
    assert abs(sum(panel["values"][0])) > 0 and panel["diverging"]


def test_patching_a_language_model_changes_nothing_before_the_difference(trained_lm: Path):
    run = qkv.load(trained_lm, "cpu")
    panel = patching_panel(run, "the cat is", "the dog is")
    changed = [" | " in column for column in panel["columns"]]
    first = changed.index(True)
    assert panel["values"][0][:first] == [0.0] * first  # a causal model knows no difference before
    assert panel["values"][-1][-1] == pytest.approx(1.0, abs=1e-4)


def test_texts_that_do_not_fit(trained: Path):
    run = qkv.load(trained, "cpu")
    with pytest.raises(ValueError, match=r"'b a c' has 4 tokens and 'b a' 3, so choose texts with equally many"):
        patching_panel(run, "b a c", "b a", target="c a b")
    with pytest.raises(ValueError, match="'b a c' and 'b  a c' have the same tokens, so nothing tells them apart"):
        patching_panel(run, "b a c", "b  a c", target="c a b")
    with pytest.raises(ValueError, match="language models or translators, and this run is a masked"):
        patching_panel(run_untrained.bert(LanguageModel()), "ab", "ac")
    spec = qkv.preset("rnnsearch", vocab_size=run.tokenizer.vocab_size, d_e=8, d_h=8, d_s=8)
    recurrent = Run(qkv.build(spec, seed=0).eval(), run.tokenizer, task="translate")
    with pytest.raises(ValueError, match="language models or translators, and this run is a recurrent model"):
        patching_panel(recurrent, "b a c", "b a d")


def test_the_command_adds_the_panel(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "look.html"
    assert main(["look", str(trained), "b a c", "--target", "c a b", "--patch", "b a d", "--out", str(page)]) == 0
    capsys.readouterr()
    assert "Activation patching" in page.read_text(encoding="utf-8")


def test_a_run_records_and_intervenes(trained_lm: Path):
    run = qkv.load(trained_lm, "cpu")
    ids = torch.tensor([[1, 2, 3]])
    with run.record("decoder.layers.0.output") as plain:
        run.model(ids)
    with run.intervene({"decoder.layers.0.attention.heads": Zero()}), run.record() as changed:
        run.model(ids)
    assert not changed["decoder.layers.0.attention.heads"].any()
    assert not torch.equal(plain["decoder.layers.0.output"], changed["decoder.layers.0.output"])
