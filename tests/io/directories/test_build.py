"""`qkv.build`: the model of each kind of spec generates and is saved; other values are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from qkv.io.directories.build import Model, RecurrentGenerator, SavableDualEncoder, build, outline

CLIP = {f"{side}{name}": n for side in ("", "text_") for name, n in {"d_model": 16, "d_ff": 16}.items()}
CLIP |= {"n_layers": 1, "n_heads": 2, "text_layers": 1, "text_heads": 2, "width": 8}
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"d_model": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 20, "max_positions": 8},
    "clip": {**CLIP, "image": (8, 8), "patch": (4, 4), "vocab_size": 20, "max_positions": 8},
    "rnnsearch": {"vocab_size": 20, "d_e": 8, "d_h": 8, "d_s": 8, "d_a": 8},
}


def test_each_kind_of_spec_has_its_class(tmp_path: Path) -> None:
    for name, cls in (("gpt2", Model), ("rnnsearch", RecurrentGenerator), ("clip", SavableDualEncoder)):
        spec = qkv.preset(name, **SIZES[name])
        model: Any = build(spec, seed=1)
        assert type(model) is cls
        torch.manual_seed(5)
        again: Any = build(spec, seed=1)  # whatever the global generator says
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
        loaded: Any = qkv.load(model.save(tmp_path / name), device="cpu").model
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))


def test_on_the_meta_device_nothing_is_allocated() -> None:
    spec = qkv.preset("gpt2")
    model: Any = build(spec, device="meta")
    assert all(p.is_meta for p in model.parameters()) and sum(p.numel() for p in model.parameters()) == 124_439_808
    small = qkv.preset("gpt2", **SIZES["gpt2"])
    drawn, values = outline(small, device=torch.device("cpu"), seed=3)
    assert values is not None and all(p.is_meta for p in drawn.parameters())
    assert all(torch.equal(values.value(path), p) for path, p in build(small, seed=3).named_parameters())


def test_what_is_no_spec_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a spec is that of a model, such as qkv.preset\('gpt2'\)"):
        build("gpt2")  # type: ignore[call-overload]
