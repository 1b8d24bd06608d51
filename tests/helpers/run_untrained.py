"""Runs of every kind, as small as they come and untrained."""

from __future__ import annotations

import string
from typing import Any

import qkv
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.inference.run import Run

TINY = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16}


def words(template: str | None = None) -> Tokenizer:
    roles = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "mask": "<mask>"}
    return train(
        TokenizerSpec.from_dict({"kind": "char", **roles, "chat_template": template}),
        iter([string.printable.rstrip(string.whitespace) + " "]),
    )


def of(preset: str, tokenizer: Tokenizer | None, task: Any, changes: dict[str, Any] | None = None, **sizes: Any) -> Run:
    size = {"vocab_size": 16} if tokenizer is None else {"vocab_size": tokenizer.vocab_size}
    spec = qkv.preset(preset, **{**TINY, **size, **sizes})
    return Run(qkv.build(spec.replace(changes or {}), seed=0).eval(), tokenizer, task=task)


def bert(head: Any) -> Run:
    return of("bert-base", words(), "read", {"head": head, "classification_head": None}, max_positions=32)


def vit() -> Run:
    spec = qkv.preset("vit-base-16", d_model=16, n_layers=1, n_heads=2, d_ff=16, image=(16, 16), patch=(8, 8), labels=3)
    return Run(qkv.build(spec, seed=0).eval(), None, task="read")
