"""Rotary parameters of the Hub as GGUF's metadata and tensors, and back.

Linear scaling and YaRN are metadata. Llama 3's frequencies and LongRoPE's are tensors that divide the rates; llama.cpp
refuses a file with them in an architecture that doesn't read them. Llama 3's parameters are written beside them, under
keys that llama.cpp doesn't read; in other files they are the published ones, or follow from the factors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....core.spec import brief
from ....nn.positions.rope_scaling import Llama3Scaling, Turn
from .keys import Config, Metadata, decimal, scalar

FREQUENCIES = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
ORIGINAL = "original_max_position_embeddings"
LLAMA3_ENDS = ("low_freq_factor", "high_freq_factor")
_LLAMA3 = ((1.0, 4.0, 8192),)  # low and high frequency factors, and the context of training, as published


@dataclass(frozen=True)
class RopeKeys:
    """`rope_parameters` as `rope.*`.

    fraction: the family rotates a part of each head.
    tensors:  scalings that llama.cpp reads as a tensor of factors in this family.
    usual:    the base if the file lacks it.
    """

    fraction: bool = False
    tensors: tuple[str, ...] = ()
    head_dim: str | None = "head_dim"
    usual: float = 10000.0

    def write(self, config: Config) -> Metadata:
        rope = config["rope_parameters"]
        return {**self._width(config, rope), **scaling_keys(rope, config, self.tensors)}

    def _width(self, config: Config, rope: Mapping[str, Any]) -> Metadata:
        d_head = (self.head_dim and config.get(self.head_dim)) or config["hidden_size"] // config["num_attention_heads"]
        fraction = rope.get("partial_rotary_factor", 1.0)
        if fraction != 1.0 and not self.fraction:
            raise ValueError(
                f"qkv writes GGUF of this family with whole heads rotated, and this model rotates {fraction} of each"
            )
        return {"rope.dimension_count": int(fraction * d_head)}

    def read(self, metadata: Config) -> dict[str, Any]:
        rope = read_scaling(metadata, self.usual)
        heads, width = scalar(metadata, "attention.head_count"), scalar(metadata, "embedding_length")
        d_head = scalar(metadata, "attention.key_length") or (width // heads if width and heads else None)
        rotated = scalar(metadata, "rope.dimension_count", d_head)
        if self.fraction and d_head:
            rope["partial_rotary_factor"] = rotated / d_head
        elif rotated != d_head:
            raise ValueError(f"rope.dimension_count is {brief(rotated)}, and this family rotates all {d_head}")
        return {"rope_parameters": rope}


def scaling_keys(rope: Mapping[str, Any], config: Config, tensors: tuple[str, ...] = ()) -> Metadata:
    """The base and the scaling, as metadata. Raises ValueError for a scaling that is not written."""
    metadata: Metadata = {"rope.freq_base": float(rope["rope_theta"])}
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return metadata
    if (
        kind == "llama3" and kind in tensors
    ):  # llama.cpp reads the tensor of factors alone; what made them is for reading it back
        metadata |= {"rope.scaling.original_context_length": rope[ORIGINAL]}
        return metadata | {f"rope.scaling.{name}": float(rope[name]) for name in LLAMA3_ENDS}
    if kind == "linear":
        return metadata | {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    if kind == "yarn" and not rope.get("mscale") and rope.get("truncate", True):
        metadata |= {"rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"])}
        metadata |= {"rope.scaling.original_context_length": rope[ORIGINAL]}
        metadata |= {f"rope.scaling.yarn_{name}": float(rope[name]) for name in ("beta_fast", "beta_slow")}
        if rope.get("attention_factor") is None:
            return metadata
    if kind == "longrope" and kind in tensors:
        from ....nn.positions.rope_scaling import LongRoPE

        names = {ORIGINAL: "original_max_positions"}
        known = {names.get(key, key): value for key, value in rope.items()}
        scaling = LongRoPE(**{key: known[key] for key in LongRoPE.model_fields if key in known})
        metadata |= {"rope.scaling.original_context_length": rope[ORIGINAL]}
        return metadata | {"rope.scaling.attn_factor": scaling.magnitude()}
    raise ValueError(
        f"qkv writes no GGUF of this family with a rotary scaling like this model's ({brief(dict(rope))}); "
        f"{', '.join(('linear', *tensors))} and yarn (with its usual attention factor) are written"
    )


def read_scaling(metadata: Config, usual: float = 10000.0) -> dict[str, Any]:
    """`rope_parameters` by metadata. Raises ValueError for a scaling that isn't read."""
    rope: dict[str, Any] = {"rope_theta": scalar(metadata, "rope.freq_base", usual), "rope_type": "default"}
    kind, factor = metadata.get("rope.scaling.type"), scalar(metadata, "rope.scaling.factor")
    if kind is None:  # llama.cpp then takes a factor as linear
        factor = scalar(metadata, "rope.scale_linear") if factor is None else factor  # as the first files said it
        kind = None if factor in (None, 0.0, 1.0) else "linear"
    if kind in (None, "none", "longrope"):  # LongRoPE's factors are tensors
        keys = {"original_context_length": ORIGINAL, "attn_factor": "attention_factor"} | {n: n for n in LLAMA3_ENDS}
        for name, key in keys.items():
            if f"rope.scaling.{name}" in metadata:
                rope[key] = scalar(metadata, f"rope.scaling.{name}")
        return rope
    if kind == "linear":
        _no_magnitude(metadata, kind)
        return rope | {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise ValueError(f"rope.scaling.type is {brief(kind)}; linear, yarn and longrope are read")
    rope |= {"rope_type": "yarn", "factor": factor}
    for name, key in (
        ("original_context_length", ORIGINAL),
        ("yarn_beta_fast", "beta_fast"),
        ("yarn_beta_slow", "beta_slow"),
    ):
        if f"rope.scaling.{name}" in metadata:
            rope[key] = scalar(metadata, f"rope.scaling.{name}")
    _no_magnitude(metadata, kind)
    return rope


def _no_magnitude(metadata: Config, kind: str) -> None:
    """Raise ValueError if the file scales rotated queries and keys, which qkv reads only with LongRoPE."""
    factor = scalar(metadata, "rope.scaling.attn_factor", 1.0)
    if factor != 1.0:
        raise ValueError(
            f"rope.scaling.attn_factor is {brief(factor)}, which is not read with the scaling {brief(kind)}"
        )


# -- tensors ------------------------------------------------------------------------------------------------------------


def factor_tensors(config: Config) -> dict[str, Tensor]:
    """The tensors by which llama.cpp divides the rates, for Llama 3's scaling and LongRoPE."""
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "llama3":
        return {FREQUENCIES: _llama3_factors(rope, _rotated(config))}
    if rope.get("rope_type") == "longrope":
        return {LONG: torch.tensor(rope["long_factor"]), SHORT: torch.tensor(rope["short_factor"])}
    return {}


def _is_usual(rope: Mapping[str, Any], longest: Any) -> bool:
    """Whether LongRoPE's attention factor is the one that follows from the lengths."""
    original, factor = rope.get(ORIGINAL), rope.get("attention_factor")
    if type(original) is not int or type(longest) is not int or factor is None or not 1 < original <= longest:
        return False
    return math.isclose(factor, math.sqrt(1 + math.log(longest / original) / math.log(original)), rel_tol=1e-6)


def _decimals(factors: Tensor) -> list[float]:
    return [decimal(factor) for factor in factors.tolist()]


def _rotated(config: Config) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _llama3_factors(rope: Mapping[str, Any], width: int) -> Tensor:
    turn = Turn(rope["rope_theta"], width)
    scaling = Llama3Scaling(
        factor=rope["factor"],
        low_freq_factor=rope["low_freq_factor"],
        high_freq_factor=rope["high_freq_factor"],
        original_max_positions=rope[ORIGINAL],
    )
    return turn.rates() / scaling.rates(turn, None)


def with_factors(config: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """A configuration with the scaling that these tensors of a file describe. Raises ValueError for unknown frequencies."""
    rope = dict(config.get("rope_parameters") or {})
    if LONG in tensors and SHORT in tensors:
        rope |= {
            "rope_type": "longrope",
            "long_factor": _decimals(tensors[LONG]),
            "short_factor": _decimals(tensors[SHORT]),
        }
        beside = {ORIGINAL: rope[ORIGINAL]} if ORIGINAL in rope else {}
        if _is_usual(rope, config.get("max_position_embeddings")):
            del rope["attention_factor"]
        return config | {"rope_parameters": rope, **beside}
    said: tuple[Any, ...] = (None, None, None)
    if rope.get("rope_type") == "default":
        said = tuple(rope.pop(name, None) for name in (*LLAMA3_ENDS, ORIGINAL))
        if (factor := rope.pop("attention_factor", 1.0)) != 1.0:
            raise ValueError(
                f"rope.scaling.attn_factor is {brief(factor)}, which is only read with LongRoPE's tensors {LONG} and {SHORT}"
            )
        config = config | {"rope_parameters": rope}
    if FREQUENCIES not in tensors or bool((tensors[FREQUENCIES] == 1).all()):
        return config
    factors = tensors[FREQUENCIES].float()
    for low, high, original in (said, *_LLAMA3, *_solved(factors, rope["rope_theta"])):
        if low is None or high is None or original is None:
            continue
        tried = {
            **rope,
            "rope_type": "llama3",
            "factor": round(float(factors.max()), 4),
            "low_freq_factor": low,
            "high_freq_factor": high,
            ORIGINAL: original,
        }
        expected = _llama3_factors(tried, 2 * len(factors))
        if torch.allclose(expected, factors, rtol=1e-4):
            return config | {"rope_parameters": tried}
    raise ValueError(
        f"{FREQUENCIES} holds factors that no scaling of Llama 3's kind gives, the only ones that are read"
    )


def _solved(factors: Tensor, base: float) -> list[tuple[float, float, int]]:
    """The ends of the ramp by two factors within it, for a context of 8,192: only their quotients by it matter."""
    s, turns = factors.double().max(), Turn(base, 2 * len(factors)).rates().double() * (8192 / (2 * math.pi))
    keep = (1 / factors.double() - 1 / s) / (1 - 1 / s)
    inside = ((keep > 1e-4) & (keep < 1 - 1e-4)).nonzero().flatten().tolist()
    if len(inside) < 2:
        return []
    i, j = inside[0], inside[-1]
    slope = float((turns[i] - turns[j]) / (keep[i] - keep[j]))
    low = float(turns[i]) - slope * float(keep[i])
    return [(low, low + slope, 8192)] if 0 < low < low + slope else []
