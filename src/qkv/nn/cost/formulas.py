"""Formulas of parameters and FLOPs, to stand beside the numbers: 4d² for the projections of attention, 8d² …

FLOPs are counted for one token: of the source for an encoder, of the target for a decoder and the head. `SYMBOLS` says what
the symbols are, and `values` their values. Biases and norms are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..attention.multi_head import Attention
from ..layers.feedforward import FeedForward
from ..layers.moe import MixtureOfExperts
from ..models.base import ModelSpec
from ..models.heads.language_model import LanguageModel
from ..models.stack import pairs
from ..models.transformer import Transformer
from .flops import BatchShape, token_tables

SYMBOLS = {
    "d": "width",
    "f": "feed-forward width",
    "V": "vocabulary",
    "S": "keys that a token sees on average",
    "N": "tokens of the source",
    "r": "tokens of the source for each of the target",
    "h": "heads",
    "k": "heads of keys and values",
    "e": "width of a head",
    "E": "experts",
    "K": "experts of a token",
}
_MOST_SQUARES = 16  # wider feed-forward layers are written with f


class Formulas(NamedTuple):
    """Of one part over all layers: parameters, and forward FLOPs per token. Empty if there is no simple one."""

    parameters: str = ""
    flops: str = ""


def formulas(spec: ModelSpec) -> dict[str, Formulas]:
    """The formulas of the parts that `cost.flops.parts` names. Parts whose layers differ have none."""
    if not isinstance(spec, Transformer):
        return {}
    found = {"embedding tables": Formulas(_tables(spec))}
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


def values(spec: Transformer, shape: BatchShape) -> dict[str, dict[str, float]]:
    """The values of the symbols in each part's formulas, by the part's name."""
    found: dict[str, dict[str, float]] = {}
    for name, stack in spec.stacks():
        encodes = name == "encoder" and spec.is_encoder_decoder
        tokens = shape.source if encodes else shape.length
        known: dict[str, float] = {"d": spec.d_model}
        block = stack.layers[0]
        seen = sum(pairs(layer.attention, tokens) for layer in stack.layers) / len(stack.layers)
        found[f"{name} attention"] = known | _of_heads(block.attention, spec.d_model) | {"S": seen / tokens}
        if block.cross is not None:
            other = {"N": shape.source, "r": shape.source / shape.length}
            found[f"{name} cross-attention"] = known | _of_heads(block.cross, spec.d_model) | other
        experts = {"E": getattr(block.feedforward, "n_experts", 0), "K": getattr(block.feedforward, "top_k", 0)}
        found[f"{name} feed-forward"] = known | {"f": getattr(block.feedforward, "d_ff", 0)} | experts
    return found | {name: {"d": spec.d_model, "V": spec.vocab_size} for name in ("embedding tables", "head")}


def legend(spec: Transformer, shape: BatchShape) -> list[str]:
    """The symbols that the formulas use, with their meanings and values, in the order of `SYMBOLS`."""
    known, lines = values(spec, shape), []
    used = {name: "".join(own) for name, own in formulas(spec).items()}
    for symbol, meaning in SYMBOLS.items():
        parts = [name for name, text in used.items() if symbol in text and symbol in known.get(name, {})]
        numbers = dict.fromkeys(f"{known[name][symbol]:,.6g}" for name in parts)
        if numbers:
            lines.append(f"{symbol} = {' or '.join(numbers)}: {meaning}")
    return lines


def _of_heads(mixer: Any, d: int) -> dict[str, float]:
    heads, width = mixer.heads(d) or (0, 0)
    return {"h": heads, "e": width, "k": getattr(mixer, "n_kv_heads", None) or heads}


def _tables(spec: Transformer) -> str:
    """V·d for each table; "" for tables of another width or of several vocabularies."""
    count, rest = divmod(token_tables(spec), spec.vocab_size * spec.d_model or 1)
    return "" if rest or not count or not spec.vocab_size else "V·d" if count == 1 else f"{count}·V·d"


def _head(head: LanguageModel) -> Formulas:
    transform = head.transform
    if transform is not None and transform.width is not None:
        return Formulas()
    parameters = ["d²"] * (transform is not None) + ["V·d"] * (not head.tied)
    return Formulas(" + ".join(parameters), "2·V·d" + " + 2d²" * (transform is not None))


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
        whole = first.d_ff % d == 0 and n * first.d_ff // d <= _MOST_SQUARES
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
        plain_share = heads * width == d
        own, other = ("4d²", f"{4 * keys / heads:g}d²·r") if plain_share else ("4·d·h·e", "4·d·k·e·r")
        return Formulas(matrices.parameters, f"{own} + {other} + {scores.replace('S', 'N')}")
    return Formulas(matrices.parameters, f"{matrices.flops} + {scores}")
