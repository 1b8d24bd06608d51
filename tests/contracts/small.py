"""Tiny models and layouts for the contracts: every number drawn large enough that a mistake in any part is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import qkv
from qkv.core.layout import Layout, Role
from qkv.nn.attention.multi_head import Attention
from qkv.nn.models.block import Block
from qkv.nn.models.stack import Stack
from qkv.nn.models.transformer import Transformer, TransformerModel
from qkv.nn.patterns.basic import Pattern, causal, full
from qkv.nn.positions.absolute import Learned, NoPosition
from qkv.nn.positions.base import Position

VOCAB, WIDTH, LONGEST, PREFIXED = 17, 16, 40, 3
FEEDFORWARD = {"kind": "feedforward", "d_ff": 20}


def spec(
    family: str = "decoder",
    pattern: Pattern | None = None,
    position: Position | tuple[Position | None, ...] | None = None,
    backend: str = "auto",
    heads: dict[str, Any] | None = None,
    block: dict[str, Any] | None = None,
    dropout: float = 0.0,
    layers: int = 2,
    **changes: Any,
) -> Transformer:
    """A model of a few thousand parameters. The pattern is that of the last stack, an encoder beside it is full."""
    position, *own = position if isinstance(position, tuple) else (position or NoPosition(),)
    own = own[:layers] or [None] * layers
    attention = {"n_heads": 4, "backend": backend, "dropout": dropout, **(heads or {})}
    mine = dict(block or {"placement": "pre", "norm": "layernorm"})
    inner = {key.split(".")[1]: mine.pop(key) for key in list(mine) if key.startswith("feedforward.")}
    made = {"feedforward": {**FEEDFORWARD, **inner, "dropout": dropout}, **mine, "dropout": dropout}
    if family == "encoder-decoder":
        made["placement"] = "pre" if made["placement"] == "parallel" else made["placement"]
        made.pop("shared_norm", None)
    crosses = {"cross": Attention(**attention)} if family == "encoder-decoder" else {}
    last = Attention(**attention, pattern=pattern or (full() if family == "encoder" else causal()))
    embedding = {"scale": "sqrt", "dropout": dropout}
    stacks = {
        "decoder" if family != "encoder" else "encoder": Stack(
            embedding=embedding,
            position=position,
            blocks=tuple(Block(attention=last, position=p, **crosses, **made) for p in own),
            norm="layernorm",
        )
    }
    if crosses:
        around = tuple(Block(attention=Attention(**attention), position=p, **made) for p in own)
        stacks["encoder"] = Stack(embedding=embedding, position=position, blocks=around, norm="layernorm")
    bound = {"max_positions": LONGEST} if isinstance(position, Learned) else {}
    return Transformer(vocab_size=VOCAB, d_model=WIDTH, **bound, **stacks, **changes)


def model(*args: Any, dtype: torch.dtype = torch.float64, seed: int = 0, **kwargs: Any) -> TransformerModel:
    """The model of `spec(...)`, in evaluation mode, its parameters moved away from where they start."""
    return stirred(qkv.build(spec(*args, **kwargs), dtype=dtype, seed=seed)).eval()


@torch.no_grad()
def stirred(built: TransformerModel, size: float = 0.25) -> TransformerModel:
    """Gains unlike one and biases unlike zero: what every parameter does must show."""
    generator = torch.Generator().manual_seed(7)
    for parameter in built.parameters():
        parameter.add_(size * torch.randn(parameter.shape, generator=generator).to(parameter.dtype))
    return built


def ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# -- layouts -----------------------------------------------------------------------------------------------------------


def with_prefix(layout: Layout) -> Layout:
    """The first tokens of every sequence or document carry the role PREFIX, and those but the first are one medium, for
    patterns that ask for it."""
    first = layout.positions[..., 0]
    prefixed = layout.with_roles(torch.where((first >= 0) & (first < PREFIXED), int(Role.PREFIX), 0))
    return prefixed.with_media(((first > 0) & (first < PREFIXED)).long())


def alone(length: int, start: int = 0) -> Layout:
    whole = with_prefix(Layout.full(start + length))
    return whole.slice(start, start + length) if start else whole


def padded(lengths: Sequence[int], side: str, width: int | None = None) -> Layout:
    """Rows padded on one side, or with `holes`: real tokens scattered among padding."""
    width = width or max(lengths) + 1
    if side != "holes":
        return with_prefix(Layout.from_lengths(lengths, width, side))  # type: ignore[arg-type]
    mask = torch.zeros(len(lengths), width, dtype=torch.bool)
    generator = torch.Generator().manual_seed(3)
    for row, n in enumerate(lengths):
        mask[row, torch.randperm(width, generator=generator)[:n]] = True
    return with_prefix(Layout.from_mask(mask))


def packed(rows: Sequence[Sequence[int]], width: int | None = None) -> Layout:
    return with_prefix(Layout.packed(rows, width))


def vague(layout: Layout) -> Layout:
    """The same places without the host's facts: nothing may depend on a shortcut."""
    return replace(layout, padding="mixed", one_segment=False, sequential=False, start=None, lengths=None)


def spread(rows: Sequence[Tensor], layout: Layout, fill_seed: int = 99) -> Tensor:
    """Rows of token ids put where the layout's real tokens are, with arbitrary tokens in the padding."""
    out = ids(*layout.shape, seed=fill_seed)
    for row, tokens in enumerate(rows):
        out[row, layout.valid[row]] = tokens
    return out


# -- comparing ---------------------------------------------------------------------------------------------------------


def distance(found: Tensor, wanted: Tensor) -> float:
    """Relative L2 distance; NaN if there is one."""
    found, wanted = found.detach().double(), wanted.detach().double()
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-12)) if wanted.numel() else 0.0


def same(found: Tensor, wanted: Tensor, tolerance: float = 1e-9, what: str = "") -> None:
    apart = distance(found, wanted)
    assert apart <= tolerance, f"{what or 'values'} are {apart:.3g} apart in relative L2 norm, over {tolerance:g}"


def gradients(built: torch.nn.Module) -> dict[str, Tensor]:
    """The parameters' gradients (zeros if there is none), which are cleared."""
    found = {}
    for name, parameter in built.named_parameters():
        found[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        parameter.grad = None
    return found


def same_gradients(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float = 1e-8) -> None:
    """Held against the size of all gradients together: some are zero but for rounding."""
    whole = torch.cat([g.flatten() for g in wanted.values()]).double().norm().clamp(min=1e-12)
    for name, gradient in wanted.items():
        apart = float((found[name].double() - gradient.double()).norm() / whole)
        assert apart <= tolerance, f"the gradient of {name} is {apart:.3g} of all gradients apart, over {tolerance:g}"
