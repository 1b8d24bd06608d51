"""What can be removed from a model: the heads, neurons and layers of its stacks, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from ...core.spec import brief, nearest
from ..attention.mixer import Pass
from ..attention.multi_head import Attention, MultiHeadAttention
from ..layers.feedforward import FeedForwardNet
from ..layers.quantized import check_not_quantized
from ..models.block import BlockModule
from ..models.transformer import Transformer, TransformerModel

Heads = Mapping[str, Sequence[int]]
"""Heads by layer: `{"decoder.0": [1, 3], "decoder.0.cross": [2]}`; indices are the model's present indices, from 0."""


@dataclass(frozen=True)
class AttentionLayer:
    """An attention layer with heads: `decoder.3` is its self-attention and `decoder.3.cross` its cross-attention.

    block: the path of its block in the spec; sublayer: "attention" or "cross". group: query heads of a key-value head, which
    are removed together.
    """

    name: str
    block: str
    sublayer: str
    n_heads: int
    group: int

    @property
    def site(self) -> str:
        """The name of the outputs of its heads in `look.activations`."""
        stack, _, index = self.block.split(".")
        return f"{stack}.layers.{index}.{self.sublayer}.heads"


def attention_layers(model: nn.Module) -> dict[str, AttentionLayer]:
    """Return the layers whose heads can be removed, by name. Raises ValueError for a model that has none."""
    spec = spec_of(model)
    layers: dict[str, AttentionLayer] = {}
    for stack, described in spec.stacks():
        for i, block in enumerate(described.blocks):
            for sublayer in ("attention", "cross"):
                mixer = getattr(block, sublayer)
                if type(mixer) is not Attention or mixer.pattern.per_head:
                    continue
                name = f"{stack}.{i}" + (".cross" if sublayer == "cross" else "")
                h, k, _, _ = mixer.widths(spec.d_model)
                layers[name] = AttentionLayer(name, f"{stack}.blocks.{i}", sublayer, h, h // k)
    if not layers:
        raise ValueError("this model has no attention layer whose heads can be removed")
    return layers


def feedforward_layers(model: nn.Module) -> dict[str, int]:
    """Return the number of neurons of each plain feed-forward layer, by the path of its block."""
    spec_of(model)
    modules = dict(model.named_modules())
    return {
        name.removesuffix(".feedforward"): module.up.out_features
        for name, module in modules.items()
        if isinstance(module, FeedForwardNet) and re.fullmatch(r"(encoder|decoder)\.blocks\.\d+\.feedforward", name)
    }


def spec_of(model: nn.Module) -> Transformer:
    """The spec of a Transformer whose layers have their own blocks. Raises ValueError for any other model."""
    if not isinstance(model, TransformerModel):
        raise ValueError(
            f"heads, neurons and layers are removed from Transformers; this model is a {type(model).__name__}"
        )
    check_not_quantized(model, "pruning")
    for name, stack in model.spec.stacks():
        if stack.order is not None:
            raise ValueError(f"the layers of the {name} share blocks, so a part of one can't be removed")
    return model.spec


def check_heads(model: nn.Module, heads: Heads) -> dict[str, list[int]]:
    """Return the heads of each layer, sorted. Raises ValueError for unknown layers and heads, for all heads of a layer, and
    for part of a group that shares keys and values."""
    layers, checked = attention_layers(model), dict[str, list[int]]()
    for name, indices in heads.items():
        if name not in layers:
            raise ValueError(f"there is no attention layer {brief(name)}; {nearest(name, layers)}")
        layer, chosen = layers[name], sorted(set(indices))
        outside = next((h for h in chosen if not 0 <= h < layer.n_heads), None)
        if outside is not None:
            raise ValueError(f"{name} has heads 0 to {layer.n_heads - 1}; there is no {outside}")
        if len(chosen) == layer.n_heads:
            raise ValueError(
                f"all {layer.n_heads} heads of {name} would be removed; keep one at least, or remove whole layers instead"
            )
        if chosen:
            checked[name] = chosen
    return checked


def module_of(model: TransformerModel, layer: AttentionLayer) -> MultiHeadAttention:
    """The module of an attention layer."""
    module = model.get_submodule(f"{layer.block}.{layer.sublayer}")
    assert isinstance(module, MultiHeadAttention)
    return module


@contextmanager
def running_passes(model: nn.Module) -> Iterator[dict[str, Pass]]:
    """Give the pass that each stack is in, by its name, while the model runs."""
    running: dict[str, Pass] = {}

    def note(stack: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            running[stack] = inputs[1]

        return hook

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, BlockModule):
                hooks.callback(module.register_forward_pre_hook(note(name.partition(".")[0])).remove)
        yield running
