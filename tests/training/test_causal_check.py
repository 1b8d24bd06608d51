"""A decoder that sees what it is to predict trains with a warning, and one that doesn't without."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.nn.patterns.basic import Pattern, by_head, causal, full, prefix, window
from qkv.training.causal_check import warn_of_lookahead
from qkv.training.loop import fit
from qkv.training.objective import Labels, NextToken, Objective, SequenceToSequence
from qkv.training.settings import Training


def model(pattern: Pattern, preset: str = "gpt2", block: str = "*") -> Any:
    spec = qkv.preset(preset, vocab_size=11, d_model=8, n_layers=3, n_heads=2)
    return qkv.build(spec.replace({f"decoder.blocks.{block}.attention.pattern": pattern}))


def said(model: Any, objective: Objective) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_lookahead(model, objective)
    return [str(warning.message) for warning in found]


@pytest.mark.parametrize(
    "pattern", [window(9), full(), by_head(causal(), window(3)), causal() | prefix(4), ~window(20)]
)
@pytest.mark.parametrize(("preset", "objective"), [("gpt2", NextToken()), ("transformer", SequenceToSequence())])
def test_a_decoder_that_sees_what_it_predicts_is_told(pattern: Pattern, preset: str, objective: Objective) -> None:
    (text,) = said(model(pattern, preset, "1"), objective)
    assert "of decoder.blocks 1 lets a token see those after it" in text
    advice = Pattern.model_validate(yaml.safe_load(f"pattern: {text.split('in a recipe ')[1]}")["pattern"])
    assert advice == causal() & pattern and not said(model(advice, preset), objective)


@pytest.mark.parametrize("pattern", [causal(), causal() & window(3), causal() | prefix()])
def test_a_decoder_that_does_not_is_not(pattern: Pattern) -> None:
    assert not said(model(pattern), NextToken()) and not said(model(pattern, "transformer"), SequenceToSequence())


def test_labels_may_be_read_from_both_sides() -> None:
    assert not said(model(full()), Labels()) and not said(torch.nn.Linear(2, 2), NextToken())


def test_training_begins_with_the_warning(tmp_path: Path) -> None:
    ids = torch.arange(10)[None]

    def stream(position: object) -> Any:
        while True:
            yield Batch({"ids": ids[:, :-1], "layout": Layout.full(9)}, ids[:, 1:].contiguous(), {"loss": 9}, 9, 9, {})

    with pytest.warns(UserWarning, match=r"the pattern {kind: window, size: 9} of decoder\.blocks 0–2"):
        fit(model(window(9)), stream, NextToken(), Training.from_dict({"max_steps": 1}), out=tmp_path / "run")
