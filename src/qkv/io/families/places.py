"""The places of sizes in a spec, for stacks of equal blocks. Families whose blocks differ define their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import And, Causal, Pattern, Window, causal, window
from ..hub.family import at

Place = str | Callable[[Transformer], Any]


def places(stack: str) -> dict[str, Place]:
    """The places of the sizes that factories share, in the one stack of a model, `encoder` or `decoder`."""
    block = f"{stack}.blocks.0"
    return {
        "n_layers": f"{stack}.n_layers",
        "n_heads": f"{block}.attention.n_heads",
        "n_kv_heads": lambda spec: heads(getattr(spec, stack), spec.d_model)[1],
        "d_head": lambda spec: heads(getattr(spec, stack), spec.d_model)[2],
        "attention_bias": f"{block}.attention.bias",
        "attention_dropout": f"{block}.attention.dropout",
        "d_ff": f"{block}.feedforward.d_ff",
        "activation": f"{block}.feedforward.activation",
        "feedforward_bias": f"{block}.feedforward.bias",
        "dropout": f"{block}.dropout",
        "eps": f"{block}.norm.eps",
        "embedding_dropout": f"{stack}.embedding.dropout",
        "token_types": f"{stack}.embedding.token_types",
        "position": f"{stack}.position",
        "windows": lambda spec: tuple(window_of(block.attention.pattern) for block in getattr(spec, stack).blocks),
        "tied": "head.tied",
    }


def heads(stack: Stack, d_model: int) -> tuple[int, int, int, int]:
    """(H, K, D, E) of a stack's first block."""
    widths: tuple[int, int, int, int] = at(stack, "blocks.0.attention").widths(d_model)
    return widths


def sliding(size: int | None) -> Pattern:
    """Causal attention, to the last `size` tokens if there is a size."""
    return causal() if size is None else causal() & window(size)


def window_of(pattern: Pattern) -> int | None:
    """The size that `sliding` was given. Raises AttributeError for another pattern."""
    if pattern == Causal():
        return None
    parts = pattern.parts if isinstance(pattern, And) else ()
    for part in parts:
        if isinstance(part, Window) and set(parts) == {Causal(), window(part.size)}:
            return part.size
    raise AttributeError(f"{pattern} is neither causal nor a causal window")
