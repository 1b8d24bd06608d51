"""FLOPs of every preset, at its full size on tensors without contents: products as PyTorch counts them, and norms."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from qkv.core.graphs import registered
from qkv.io.families import preset, presets
from qkv.nn.cost.memory_tracking import without_contents
from qkv.nn.layers.moe import MixtureOfExperts
from qkv.nn.models.build import build
from qkv.nn.models.stack import pairs
from qkv.nn.models.transformer import Transformer

TOKENS, SOURCE = 16, 12
SPARSE = ("longformer", "bigbird")
"""Families whose layers need a sparse pattern, while the reference kernel computes the products of all pairs."""
SOUNDS = ("whisper", "wav2vec2", "hubert", "speech-")
"""Families that read sounds instead of tokens; `tests/nn/layers` holds their FLOPs."""
TRANSFORMERS = [name for name in presets() if isinstance(preset(name), Transformer) and not name.startswith(SOUNDS)]
DENSE = [name for name in TRANSFORMERS if not name.startswith(SPARSE)]


def grouped_products(x: tuple[int, ...], weight: tuple[int, ...], *_: Any, **__: Any) -> int:
    """FLOPs of qkv's operator for mixtures of experts, which PyTorch's counter does not know: one product for each row."""
    return 2 * x[0] * weight[1] * weight[2]


registered("grouped_products")
COUNTED = {torch.ops.qkv.grouped_products: grouped_products}


def dense(spec: Transformer) -> Transformer:
    """The model with attention to all pairs by the reference kernel, whose products PyTorch counts."""
    changes: dict[str, Any] = {}
    for name, stack in spec.stacks():
        for i, block in enumerate(stack.blocks):
            for part in ("attention", "cross"):
                mixer = getattr(block, part)
                for field, value in (("pattern", "full"), ("backend", "reference")):
                    if hasattr(mixer, field):
                        changes[f"{name}.blocks.{i}.{part}.{field}"] = value
    return spec.replace(changes)


def inputs(spec: Transformer, device: str) -> tuple[tuple[torch.Tensor, ...], int, int]:
    """Arguments of the forward pass, and how many tokens the output stack and a separate encoder see."""
    first = (spec.encoder or spec.output).embedding
    grid = getattr(first, "grid", None)
    if grid is None:
        lengths = (SOURCE, TOKENS) if spec.is_encoder_decoder else (TOKENS,)
        ids = tuple(torch.zeros(1, n, dtype=torch.long, device=device) for n in lengths)
        return ids, TOKENS, SOURCE if spec.is_encoder_decoder else 0
    pixels = torch.zeros(1, first.channels, *first.image, device=device)
    if spec.is_encoder_decoder:
        return (pixels, torch.zeros(1, TOKENS, dtype=torch.long, device=device)), TOKENS, grid.tokens
    return (pixels,), grid.tokens, 0


class Norms:
    """Counts 8 FLOPs for each number that a LayerNorm sees and 4 for an RMSNorm, but for norms of queries and keys,
    which specs do not count."""

    def __init__(self, model: nn.Module) -> None:
        self.flops = 0
        for path, module in model.named_modules():
            kind = type(module).__name__.lower().removeprefix("offset")
            counted = not path.endswith((".q_norm", ".k_norm"))
            if counted and kind.startswith(("layernorm", "rmsnorm")):
                module.register_forward_hook(self._hook(8 if kind.startswith("layernorm") else 4))

    def _hook(self, each: int) -> Any:
        def count(module: nn.Module, arguments: Any, output: torch.Tensor) -> None:
            self.flops += each * output.numel()

        return count


FAST = (
    "transformer",
    "gemma-2-2b",
    "bytenet",
    "convs2s",
    "bart-base",
    "yolos-tiny",
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in DENSE])
def test_flops_are_those_that_pytorch_counts(name: str) -> None:
    spec = dense(preset(name))
    layers = [block.feedforward for _, stack in spec.stacks() for block in stack.blocks]
    mixture = any(isinstance(layer, MixtureOfExperts) for layer in layers)
    device = "cpu" if mixture else "meta"  # routers use autocast, which the meta device lacks
    with without_contents() if mixture else nullcontext():
        model = build(spec, device=device, initialized=False).eval()
        arguments, tokens, source = inputs(spec, device)
        norms = Norms(model)
        with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter:
            model(*arguments)
    predicted, products = spec.cost(tokens, source).flops, counter.get_total_flops()
    rest = 1e-3 if arguments[0].is_floating_point() else 5e-5  # biases, which specs count
    assert abs(predicted - products - norms.flops) <= rest * products, (
        f"{predicted:,} predicted, {products:,} in products, {norms.flops:,} in norms"
    )


@pytest.mark.parametrize("name", [name for name in TRANSFORMERS if name.startswith(SPARSE)])
def test_flops_of_sparse_attention_match_its_pairs(name: str) -> None:
    """The reference kernel multiplies all pairs; what a spec counts is less by 2 · heads · (d + e) FLOPs for each pair that
    the pattern excludes."""
    spec = preset(name, n_layers=2, d_model=64, n_heads=4, d_ff=96, vocab_size=50)
    changes = {f"encoder.blocks.{i}.attention.backend": "reference" for i in range(2)}
    spec, tokens = spec.replace(changes), 900
    model = build(spec).eval()
    norms = Norms(model)
    with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter, torch.no_grad():
        model(torch.zeros(1, tokens, dtype=torch.long))
    excluded = sum(tokens**2 - pairs(block.attention, tokens) for block in spec.encoder.layers)
    assert excluded > tokens**2 / 4
    products = counter.get_total_flops() - excluded * 2 * 4 * (16 + 16)
    predicted = spec.cost(tokens).flops
    assert abs(predicted - products - norms.flops) <= 2e-3 * products, f"{predicted:,}, {products:,} + {norms.flops:,}"
