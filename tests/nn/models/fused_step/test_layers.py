"""Which presets leave the fused step, and why: every factory in a small size."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import qkv
from qkv.generation.model_interface import evaluating
from qkv.io.families.named import presets
from qkv.nn.kernels.native import decoding_step as native
from qkv.nn.models.fused_step import reason_against
from qkv.nn.models.fused_step.rows import FusedRows
from qkv.nn.models.transformer import TransformerModel

pytestmark = pytest.mark.skipif(not native.ready(), reason="there is no C++ compiler here")

SMALL: dict[str, Any] = dict.fromkeys(("n_layers", "n_encoder_layers", "n_decoder_layers"), 1) | {
    "d_model": 32,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_head": 8,
    "d_ff": 32,
    "d_expert": 16,
    "d_shared": 16,
    "vocab_size": 60,
    "max_positions": 64,
}
TEMPERED = "rotations of queries and keys other than Rotary's"
BY_MODULES = {
    "ministral-3-3b": TEMPERED,
    "ministral-3-8b": TEMPERED,
    "bytenet": "the attention ByteNetBlock",
    "convs2s": "the attention ConvolutionLayer",
}
ROW_BY_ROW = BY_MODULES | {"joint": "layers without attention, or that don't see all tokens in their cache"}


def small_models() -> dict[str, TransformerModel]:
    """A model of each factory and each choice that a preset makes of it, if it has a decoder."""
    found: dict[Any, tuple[str, dict[str, Any]]] = {}
    for name, (factory, sizes) in presets().items():
        names = inspect.signature(factory).parameters.keys() | sizes.keys()
        given = {key: value for key, value in SMALL.items() if key in names and sizes.get(key, 0) is not None}
        choices = {key: str(value) for key, value in sizes.items() if key not in given}
        found.setdefault((str(factory), *sorted(choices.items())), (name, given))
    specs = {name: qkv.preset(name, **given) for name, given in found.values()}  # type: ignore[call-overload]
    with_decoder = {name: spec for name, spec in specs.items() if getattr(spec, "decoder", None) is not None}
    return {name: qkv.build(spec, seed=0).eval() for name, spec in with_decoder.items()}


@pytest.mark.filterwarnings("ignore")
def test_presets_that_leave_the_fused_step_have_these_reasons() -> None:
    alone, served = {}, {}
    for name, model in small_models().items():
        with evaluating(model), torch.no_grad():
            decoder: Any = model.decoder
            alone[name], served[name] = reason_against(decoder), FusedRows(model).reason
    assert len(alone) > 45
    assert {name: reason for name, reason in alone.items() if reason} == BY_MODULES
    assert {name: reason for name, reason in served.items() if reason} == ROW_BY_ROW
