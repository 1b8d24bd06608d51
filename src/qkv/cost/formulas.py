"""Formulas of parameters and FLOPs, to stand beside the numbers: 4d² for the projections of attention, 8d² …

Symbols: d the model's width, f that of the feed-forward layer, V the vocabulary, h heads of width e, k heads of keys and
values, S the keys that a token sees on average, E experts of which K are chosen. Biases and norms are left out.
Cross-attention has no formula per token: its keys are those of another text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..attention.multi_head import Attention
from ..layers.feedforward import FeedForward
from ..layers.moe import MixtureOfExperts
from ..models.base import ModelSpec
from ..models.heads.text import LanguageModel
from ..models.transformer import Transformer

LEGEND = (
    "d: width, f: feed-forward width, V: vocabulary, S: keys that a token sees on average; without biases and norms"
)


class Formulas(NamedTuple):
    """Of one part over all layers: parameters, and forward FLOPs per token. Empty if there is no simple one."""

    parameters: str = ""
    flops: str = ""


def formulas(spec: ModelSpec) -> dict[str, Formulas]:
    """The formulas of the parts that `cost.flops.parts` names. Parts whose layers differ have none."""
    if not isinstance(spec, Transformer):
        return {}
    found = {"embedding tables": Formulas("V·d")}
    for name, stack in spec.stacks():
        layers, blocks = len(stack.block_of), len(stack.blocks)
        for part, kinds in (
            ("attention", [block.attention for block in stack.layers]),
            ("cross-attention", [block.cross for block in stack.layers]),
            ("feed-forward", [block.feedforward for block in stack.layers]),
        ):
            one = _of_layer(kinds, spec.d_model, part == "cross-attention")
            if one is not None:
                found[f"{name} {part}"] = Formulas(_times(blocks, one.parameters), _times(layers, one.flops))
    if isinstance(spec.head, LanguageModel):
        found["head"] = _head(spec.head)
    return found


def _head(head: LanguageModel) -> Formulas:
    parameters = ["d²"] * (head.transform is not None) + ["V·d"] * (not head.tied)
    return Formulas(" + ".join(parameters), "2·V·d" + " + 2d²" * (head.transform is not None))


def _times(n: int, formula: str) -> str:
    if not formula:
        return ""
    return f"{n} · {formula}" if " " not in formula else f"{n} · ({formula})"


def _of_layer(parts: Sequence[Any], d: int, cross: bool) -> Formulas | None:
    """The formulas of a part of one layer, if all layers have the same."""
    first = parts[0]
    if any(part is None or _sizes(part, d) != _sizes(first, d) for part in parts):
        return None
    if type(first) is Attention:
        return _attention(first, d, cross)
    if type(first) is FeedForward and not any(first.low_rank.model_dump().values()):
        n = 3 if first.gated else 2
        whole = first.d_ff % d == 0
        return (
            Formulas(f"{n * first.d_ff // d}d²", f"{2 * n * first.d_ff // d}d²")
            if whole
            else Formulas(f"{n}·d·f", f"{2 * n}·d·f")
        )
    if type(first) is MixtureOfExperts and first.shared.kind == "none":
        n = 3 if first.gated else 2
        return Formulas(f"{n}·E·d·f + E·d", f"{2 * n}·K·d·f + 2·E·d")
    return None


def _sizes(part: Any, d: int) -> Any:
    """What the formula depends on."""
    if type(part) is Attention:
        return "attention", part.heads(d), part.n_kv_heads, part.d_value, part.low_rank, part.pruned_heads
    return part.replace(dropout=0.0) if hasattr(part, "dropout") else part


def _attention(spec: Attention, d: int, cross: bool) -> Formulas | None:
    heads, width = spec.heads(d)
    keys = spec.n_kv_heads or heads
    plain = spec.score.kind == "scaled-dot" and spec.d_value in (None, width) and not spec.pruned_heads
    if not plain or any(spec.low_rank.model_dump().values()):
        return None
    if heads * width != d:
        matrices = Formulas("2·d·(h + k)·e", "4·d·(h + k)·e")
        scores = "4·S·h·e"
    else:
        share = 2 + 2 * keys / heads
        matrices = Formulas(f"{share:g}d²", f"{2 * share:g}d²")
        scores = "4·S·d"
    if cross:
        return Formulas(matrices.parameters, "")
    return Formulas(matrices.parameters, f"{matrices.flops} + {scores}")
