"""docs/activations.md: its code runs, and its table has the names of a Transformer's activations."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from qkv.io.families import preset
from qkv.nn.activations import sites
from qkv.nn.models.build import build

PAGE = Path(__file__).parents[3] / "docs" / "activations.md"


def test_the_code_of_the_page_runs():
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    activations, result = names["activations"], names["result"]
    assert activations["decoder.layers.2.attention.weights"].requires_grad  # type: ignore[index]
    assert result.effect.shape == (3, 10)  # type: ignore[attr-defined]
    assert not torch.allclose(names["changed"], names["logits"])  # type: ignore[arg-type]


def test_the_table_names_every_activation():
    rows = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if "| (B, " in line]
    cells = [re.findall(r"`([^`]+)`", row) for row in rows]
    listed = set()
    for first, *others in cells:
        listed |= {first, *(re.sub(r"\.q$", other, first) for other in others)}
    model = build(preset("transformer", vocab_size=11, d_model=8, n_layers=1, n_heads=2, d_ff=16), seed=0)
    names = {re.sub(r"\.(attention|cross)\b", ".A", re.sub(r"^(en|de)coder", "S", name)) for name in sites(model)}
    assert {name.replace("layers.0", "layers.i") for name in names} == listed
