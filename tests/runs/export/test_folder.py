"""The tokenizer beside exported graphs gives the ids that the run reads, also for texts longer than it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, processors

import qkv
from qkv.data.memory import Memory
from qkv.runs.export.folder import write_settings
from qkv.runs.inference.classify import _rows
from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

SMALL = [
    *("training.max_steps=1", "training.eval_every=1", "evaluation.examples=4", "evaluation.test_examples=4"),
    *("model.d_model=16", "model.d_ff=32", "model.n_layers=1", "model.n_heads=2", "batching.tokens=512"),
    *("tokenizer.vocab_size=300", "training.schedule.warmup=1"),
]
WORDS = ("Hello", "my", "refund", "order", "is", "late", "again", "address", "changed,")
TEXTS = [" ".join(WORDS[(i * n) % len(WORDS)] for i in range(n)) for n in (1, 5, 40, 63, 64, 65, 150, 400)]


def trained(folder: Path, *settings: str, **columns: str) -> Run:
    rows = [{"text": text, "pair": TEXTS[-1 - i % 8], "label": "ab"[i % 2]} for i, text in enumerate(TEXTS * 4)]
    rows = [{**row, "text": f"{i} {row['text']}"} for i, row in enumerate(rows)]
    recipe = Recipe.load("classify", ["data={kind: labelled, path: x.csv}", *SMALL, *settings])
    names = {name: name for name in ("text", "label", *columns)}
    data = Memory.of(rows, columns=names)
    train(recipe.model_copy(update={"data": data}), folder, device="cpu")
    return load(folder, device="cpu")


@pytest.mark.parametrize(
    ("settings", "hub"),
    [
        ((), True),
        (("tokenizer.kind=bpe",), True),
        (("tokenizer.kind=wordpiece", "model.position=alibi"), False),
    ],
    ids=["as the recipe", "byte-level", "no family"],
)
def test_one_text_and_pairs_have_the_runs_ids(tmp_path: Path, settings: tuple[str, ...], hub: bool) -> None:
    run, folder = trained(tmp_path / "run", "task.longest=64", *settings), tmp_path / "exported"
    folder.mkdir()
    assert run.tokenizer is not None
    if "tokenizer.kind=bpe" in settings:
        run.tokenizer.raw.post_processor = processors.ByteLevel()  # as GPT-2's, without special tokens
    assert write_settings(run, folder) == hub
    theirs: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = [(row.ids, row.type_ids) for row in theirs.encode_batch(TEXTS)]
    assert found == _rows(run, TEXTS, None) and [len(ids) for ids, _ in found].count(64) >= 3
    pairs = [(a, b) for a in TEXTS for b in TEXTS]
    assert [row.ids for row in theirs.encode_batch(pairs)] == [
        ids for ids, _ in _rows(run, *(list(side) for side in zip(*pairs, strict=True)))
    ]
    if hub:
        assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 64
    again = qkv.Tokenizer.load(folder)
    assert again.encode(TEXTS[-1]) == run.tokenizer.encode(TEXTS[-1])


def test_what_reads_texts_whole_has_no_truncation(trained_lm: Path, tmp_path: Path) -> None:
    write_settings(load(trained_lm, "cpu"), tmp_path)
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).truncation is None


def test_a_classifier_in_the_hubs_format_cuts_texts_in_transformers_as_the_run_does(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    run = trained(tmp_path / "run", "task.longest=64")
    run.save(tmp_path / "hub", "hub")
    theirs = transformers.pipeline("text-classification", model=str(tmp_path / "hub"), truncation=True, top_k=None)
    for text, found in zip(TEXTS, theirs(TEXTS), strict=True):
        assert {one["label"]: one["score"] for one in found} == pytest.approx(
            run.classify(text).probabilities, abs=1e-5
        )
    kept = load(tmp_path / "hub", device="cpu").classify(TEXTS)
    assert [one.probabilities for one in kept] == [run.classify(text).probabilities for text in TEXTS]
