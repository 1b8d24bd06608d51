"""Comparisons small enough to be trained in a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qkv.runs.compare.comparison import Comparison

SMALL: dict[str, Any] = {
    "name": "small",
    "description": "Two schemes.",
    "compare": {
        "alibi": {"model.position": "alibi"},
        "learned": {"model.position": "learned", "model.max_positions": 16},
    },
    "measure": {"kind": "lengths", "factors": [1, 2, 4], "tokens": 128},
    "data": {"kind": "text"},
    "tokenizer": {"kind": "char"},
    "model": {"preset": "gpt", "d_model": 16, "n_layers": 1, "n_heads": 2, "position": "none", "max_positions": None},
    "objective": {"kind": "next-token"},
    "batching": {"context": 16, "tokens": 64, "workers": 0},
    "training": {"max_steps": 3, "optimizer": {"kind": "adamw", "lr": 0.001}, "precision": "fp32", "compile": False},
    "evaluation": {"examples": 2, "test_examples": 2, "samples": 1},
    "generation": {"max_new_tokens": 4},
}

BOTTLENECK = [
    *("data.longest=12", "data.train=100", "data.validation=10", "data.test=40", "model.d_e=8", "model.d_h=8"),
    *("model.d_s=8", "batching.tokens=256", "training.max_steps=2", "training.eval_every=null", "batching.workers=0"),
    *("training.save_every=null", "evaluation.test_examples=4", "generation.max_new_tokens=4"),
]


def load_comparison(recipe: Path, *settings: str) -> Comparison:
    found = Comparison.load(recipe, settings)
    assert found is not None
    return found
