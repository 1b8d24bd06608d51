"""FLOPs of every preset, at its full size on the meta device: products as PyTorch counts them, and norms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from qkv.families import preset, presets
from qkv.models.build import build
from qkv.models.transformer import Transformer

TOKENS, SOURCE = 16, 12
SPARSE = ("longformer", "bigbird")
"""Families whose layers need a pattern that is sparse: their pairs are counted in tests/patterns and tests/attention."""
TRANSFORMERS = [name for name in presets() if isinstance(preset(name), Transformer)]
MIXTURES = ("mixtral", "qwen1.5-moe", "qwen3-30b-a3b", "qwen3-235b-a22b")
"""Mixtures of experts, whose grouped products PyTorch does not count; tests/models/test_cost.py has their figures."""
DENSE = [name for name in TRANSFORMERS if not name.startswith((*SPARSE, *MIXTURES))]


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


def inputs(spec: Transformer) -> tuple[tuple[torch.Tensor, ...], int, int]:
    """Arguments of the forward pass, and how many tokens the output stack and a separate encoder see."""
    first = (spec.encoder or spec.output).embedding
    grid = getattr(first, "grid", None)
    if grid is None:
        lengths = (SOURCE, TOKENS) if spec.is_encoder_decoder else (TOKENS,)
        ids = tuple(torch.zeros(1, n, dtype=torch.long, device="meta") for n in lengths)
        return ids, TOKENS, SOURCE if spec.is_encoder_decoder else 0
    pixels = torch.zeros(1, first.channels, *first.image, device="meta")
    if spec.is_encoder_decoder:
        return (pixels, torch.zeros(1, TOKENS, dtype=torch.long, device="meta")), TOKENS, grid.tokens
    return (pixels,), grid.tokens, 0


class Norms:
    """Counts 8 FLOPs for each number that a LayerNorm sees and 4 for an RMSNorm, but for norms of queries and keys,
    which specs do not count."""

    def __init__(self, model: nn.Module) -> None:
        self.flops = 0
        for path, module in model.named_modules():
            kind = type(module).__name__.lower()
            counted = not any(part in path for part in (".attention.", ".cross."))
            if counted and kind.startswith(("layernorm", "rmsnorm")):
                module.register_forward_hook(self._hook(8 if kind.startswith("layernorm") else 4))

    def _hook(self, each: int) -> Any:
        def count(module: nn.Module, arguments: Any, output: torch.Tensor) -> None:
            self.flops += each * output.numel()

        return count


FAST = ("transformer", "gpt2", "llama", "gemma-2-2b", "bert-base", "t5-small", "bart-base", "vit-base-16", "yolos-tiny")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in DENSE])
def test_flops_are_those_that_pytorch_counts(name: str) -> None:
    spec = dense(preset(name))
    model = build(spec, device="meta").eval()
    arguments, tokens, source = inputs(spec)
    norms = Norms(model)
    with FlopCounterMode(display=False) as counter:
        model(*arguments)
    predicted, products = spec.cost(tokens, source).flops, counter.get_total_flops()
    rest = 1e-3 if arguments[0].is_floating_point() else 5e-5  # biases, which specs count
    assert abs(predicted - products - norms.flops) <= rest * products, (
        f"{predicted:,} predicted, {products:,} in products, {norms.flops:,} in norms"
    )
