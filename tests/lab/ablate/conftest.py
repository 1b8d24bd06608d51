"""Recipes that train in a moment: a translator of phrases, and a language model of a short text."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from small_comparison import SMALL

PAIRS = [
    *(
        "model.d_model=16",
        "model.n_layers=1",
        "model.d_ff=16",
        "model.n_heads=2",
        "data.train=60",
        "data.languages=[de]",
    ),
    *("data.validation=8", "data.test=12", "tokenizer.vocab_size=300", "batching.tokens=512", "batching.workers=0"),
    *("training.max_steps=2", "training.eval_every=1", "training.save_every=null", "evaluation.examples=4"),
    *("generation.max_new_tokens=4", "training.precision=fp32", "training.compile=false"),
]


@pytest.fixture
def pairs() -> list[str]:
    """Settings with which `localise` trains in a moment."""
    return PAIRS


@pytest.fixture
def text_recipe(tmp_path: Path) -> Path:
    words = "the quick brown fox jumps over the lazy dog while it rains in the wood and nobody minds\n"
    for split, times in (("train", 40), ("validation", 8), ("test", 8)):
        (tmp_path / f"{split}.txt").write_text(words * times)
    paths = {"path": "train", "validation_path": "validation", "test_path": "test"}
    data = {**SMALL["data"], **{key: str(tmp_path / f"{split}.txt") for key, split in paths.items()}}
    recipe = {key: value for key, value in SMALL.items() if key not in ("compare", "measure")}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**recipe, "data": data}, sort_keys=False))
    return tmp_path / "small.yaml"
