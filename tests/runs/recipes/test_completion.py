"""Completion of `KEY=VALUE` settings: keys of the recipe, kinds, and values of closed sets."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from qkv.runs.recipes.completion import TABLES, complete


@pytest.mark.parametrize(
    ("incomplete", "matches"),
    [
        ("tra", ["training."]),
        ("training.opt", ["training.optimizer=", "training.optimizer."]),
        ("training.optimizer.be", ["training.optimizer.betas="]),
        ("training.optimizer=mu", ["training.optimizer=muon"]),
        ("training.optimizer.kind=l", ["training.optimizer.kind=lion"]),
        ("training.precision=", [f"training.precision={p}" for p in ("auto", "fp32", "bf16", "fp16")]),
        ("batching.shuffle=", ["batching.shuffle=true", "batching.shuffle=false"]),
        ("training.max_steps=", []),
        ("model.n_", ["model.n_layers=", "model.n_heads=", "model.n_kv_heads="]),
        ("model.preset=gpt2-", [f"model.preset=gpt2-{size}" for size in ("medium", "large", "xl")]),
        ("model.decoder.posi", ["model.decoder.position=", "model.decoder.position."]),
        ("model.decoder.blocks.", ["model.decoder.blocks.*."]),
        (
            "model.decoder.blocks.0.attention.n_",
            [f"model.decoder.blocks.0.attention.n_{h}=" for h in ("heads", "kv_heads")],
        ),
        ("nothing.here", []),
        ("seed.deeper.", []),
    ],
)
def test_keys_and_values_are_completed(incomplete: str, matches: list[str]) -> None:
    assert complete("lm", [], incomplete) == matches


def test_kinds_decide_which_keys_there_are(tmp_path: Path) -> None:
    assert complete("lm", ["data.kind=images"], "data.c") == ["data.color=", "data.cache="]
    assert complete("lm", ["training.optimizer=muon", "broken"], "training.optimizer.mo") == [
        "training.optimizer.momentum="
    ]
    assert complete("lm", ["model.preset=llama"], "model.rope_t") == complete("llama", [], "rope_t") == []
    mine = tmp_path / "recipe.yaml"
    mine.write_text("training: {optimizer: {kind: sgd}}\n")
    for recipe in (mine, tmp_path):
        assert complete(str(recipe), [], "training.optimizer.n") == ["training.optimizer.nesterov="]
    assert complete("gpt2", [], "n_l") == ["n_layers="]
    assert complete(str(tmp_path / "none"), [], "see") == ["seed="]


def test_the_tables_match_the_present_parts() -> None:
    """In its own process, because tests register parts too."""
    code = "from qkv.runs.recipes.completion import tables; print(tables(), end='')"
    current = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    saved = files("qkv.runs.recipes").joinpath(TABLES).read_text(encoding="utf-8")
    assert saved == current, "fields or kinds have changed; run python -m qkv.runs.recipes.completion"


def test_no_part_is_imported() -> None:
    uses = "from qkv.runs.recipes.completion import complete; complete('lm', [], 'a')"
    code = f"import sys; {uses}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
