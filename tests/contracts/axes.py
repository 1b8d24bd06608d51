"""What the contracts are held against: every pattern, position scheme and backend that is registered, and the shapes of
model that they go into. A kind that a registry has and no example here fails `test_axes.py`, which says where to add one.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch

import qkv.core
import qkv.generation
import qkv.nn.attention
import qkv.nn.kv_cache
import qkv.nn.layers
import qkv.nn.models
import qkv.nn.patterns
import qkv.nn.positions
from qkv.core.spec import Spec
from qkv.generation.speculation import Speculation
from qkv.nn.attention.mixer import Mixer
from qkv.nn.kernels.backends import BACKENDS
from qkv.nn.layers.feedforward import FeedForwardLayer
from qkv.nn.layers.norm import Norm
from qkv.nn.patterns.basic import (
    Pattern,
    axial,
    by_head,
    causal,
    chunks,
    dilated,
    documents,
    fixed,
    full,
    global_tokens,
    grid_windows,
    media,
    neighborhood,
    prefix,
    random_blocks,
    sinks,
    strided,
    window,
)
from qkv.nn.patterns.bigbird import BigBird
from qkv.nn.positions.absolute import Learned, NoPosition, Sinusoidal
from qkv.nn.positions.axes import AxialRotary, MultimodalRotary
from qkv.nn.positions.base import Position
from qkv.nn.positions.bias import ALiBi, T5Buckets
from qkv.nn.positions.rope_scaling import YaRN
from qkv.nn.positions.rotary import Rotary
from qkv.nn.positions.tempered import TemperedRotary
from qkv.nn.positions.xpos import XPos

for _package in (
    qkv.nn.attention,
    qkv.core,
    qkv.generation,
    qkv.nn.kv_cache,
    qkv.nn.layers,
    qkv.nn.models,
    qkv.nn.patterns,
    qkv.nn.positions,
):  # whatever registers itself has to be imported to be seen
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)


class Example(NamedTuple):
    """One value on an axis, and what a test's name calls it."""

    label: str
    value: Any


PATTERNS: Mapping[str, tuple[Pattern, ...]] = {
    "full": (full(),),
    "causal": (causal(),),
    "window": (causal() & window(3), window(2, ahead=4)),
    "sinks": (causal() & (window(3) | sinks(2)),),
    "prefix": (causal() | prefix(3), causal() | prefix(), causal() & window(2) | prefix(within=True)),
    "documents": (causal() & documents(),),
    "media": (causal() | media(), causal() & window(3) | media()),
    "global": (window(3) | global_tokens(2), causal() & (window(2) | global_tokens())),
    "bigbird": (BigBird(size=2, random=1, seed=3, blocks=8), causal() & BigBird(size=3, random=0, blocks=6)),
    "dilated": (causal() & dilated(3, 2),),
    "strided": (causal() & strided(4),),
    "fixed": (causal() & fixed(4),),
    "chunks": (causal() & chunks(4), chunks(3, back=1, ahead=1)),
    "random-blocks": (causal() & (random_blocks(2, 2, heads=2) | window(1)),),
    "neighborhood": (causal() & neighborhood(3, grid=(4, 4)),),
    "axial": (causal() & axial(grid=(3, 4, 1)),),
    "grid-windows": (causal() & grid_windows(2, grid=(3, 4, 1)),),
    "by-head": (causal() & by_head(strided(3, "local"), strided(3, "far"), fixed(3, 2, "far")),),
    "and": (causal() & window(5) & window(4),),
    "or": (causal() & (window(2) | sinks(1)) | prefix(2),),
    "not": (causal() & ~window(2), causal() & ~(prefix() & window(2))),
}

POSITIONS: Mapping[str, tuple[Position, ...]] = {
    "none": (NoPosition(),),
    "sinusoidal": (Sinusoidal(), Sinusoidal(arrangement="concatenated", offset=2)),
    "learned": (Learned(), Learned(offset=2)),
    "rotary": (
        Rotary(),
        Rotary(pairs="interleaved", fraction=0.5),
        Rotary(scaling=YaRN(factor=4.0, original_max_positions=16)),
    ),
    "xpos": (XPos(scale_base=16.0),),
    "mrope": (MultimodalRotary(), MultimodalRotary(arrangement="interleaved")),
    "axial-rotary": (AxialRotary(),),
    "tempered-rotary": (TemperedRotary(length=3, beta=0.4),),
    "alibi": (ALiBi(),),
    "t5": (T5Buckets(buckets=8, max_distance=10), T5Buckets(buckets=6, max_distance=8, bidirectional=False)),
}

FEEDFORWARDS: Mapping[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "feedforward": {"kind": "feedforward", "d_ff": 20},
    "moe": {"kind": "moe", "n_experts": 4, "top_k": 2, "d_ff": 12, "shared": {"kind": "feedforward", "d_ff": 6}},
}

SPECULATIONS: Mapping[str, Any] = {
    "lookup": "lookup",
    "draft": {"kind": "draft", "num_speculative_tokens": 3},
    "early-exit": {"kind": "early-exit", "num_speculative_tokens": 2},
}

# Blocks and heads are less than the axes: the fast suite pairs them, the full product takes them in turn.
BLOCKS: Mapping[str, dict[str, Any]] = {
    "post": {"placement": "post", "norm": "layernorm"},
    "pre": {"placement": "pre", "norm": "rmsnorm", "feedforward.gated": True, "feedforward.activation": "silu"},
    "sandwich": {"placement": "sandwich", "norm": {"kind": "rmsnorm", "offset": 1.0}},
    "res-post": {"placement": "res-post", "norm": "rmsnorm", "residual_multiplier": 0.6},
    "norms": {
        "placement": {
            "kind": "norms",
            "before": "rmsnorm",
            "after": "layernorm",
            "sum": {"kind": "rmsnorm", "offset": 1.0},
        },
        "norm": "none",
    },
    "deepnorm": {"placement": {"kind": "deepnorm", "alpha": 1.6}, "norm": "layernorm"},
    "parallel": {"placement": "parallel", "norm": "layernorm", "shared_norm": True},
    "experts": {"placement": "pre", "norm": "rmsnorm", "feedforward": FEEDFORWARDS["moe"], "layer_scale": 0.5},
    "bare": {"placement": "pre", "norm": "none", "feedforward": "none"},
}

HEADS: Mapping[str, dict[str, Any]] = {
    "MHA": {},
    "GQA": {"n_kv_heads": 2, "bias": False},
    "MQA": {"n_kv_heads": 1, "d_value": 6, "scale": 0.7},
    "normed": {"qk_norm": "rmsnorm", "d_head": 8},
    "normed-all": {"qk_norm": "rmsnorm", "qk_norm_over": "all", "n_kv_heads": 2},
}

FAMILIES = ("encoder", "decoder", "encoder-decoder")
DECODERS = ("decoder", "encoder-decoder")

# Mixers over whole sequences, held to transformers in tests/io/families and to their equations in tests/nn/attention.
OF_LONG_TEXTS = ("global-attention", "block-sparse")
# Other mathematics, which is held to its own definition: tests/contracts/test_linear_mixers.py, tests/attention/test_*.py
OF_THEIR_OWN = (
    *("linear-attention", "performer", "linformer", "lsh-attention", "latent-attention"),
    *("convolution", "bytenet"),
)

# Roles and the module that a new kind's example belongs in; `test_axes.py` walks over it.
TABLES: Mapping[type[Spec], tuple[str, Mapping[str, Any]]] = {
    Pattern: ("PATTERNS", PATTERNS),
    Position: ("POSITIONS", POSITIONS),
    FeedForwardLayer: ("FEEDFORWARDS", FEEDFORWARDS),
    Norm: (
        "BLOCKS",
        {block["norm"] if isinstance(block["norm"], str) else block["norm"]["kind"]: 0 for block in BLOCKS.values()},
    ),
    Speculation: ("SPECULATIONS", SPECULATIONS),
    Mixer: ("model() in small.py", dict.fromkeys(("attention", "none", *OF_LONG_TEXTS, *OF_THEIR_OWN))),
}


OF_IMAGES = {
    "grid"
}  # positions over patches, which these models of tokens have none of: tests/nn/layers/test_patches.py


def ours(role: type[Spec]) -> list[str]:
    """The kinds of a role that the package itself registers; other tests may define more."""
    return [kind for kind, cls in role.kinds.items() if cls.__module__.startswith("qkv.") and kind not in OF_IMAGES]


def missing() -> list[str]:
    """Kinds without an example, each with the place for it."""
    return [
        f"the {role.role} {kind!r} has no example: add one to {table} in tests/contracts/axes.py"
        for role, (table, examples) in TABLES.items()
        for kind in ours(role)
        if kind not in examples
    ]


def _examples(role: type[Spec], table: Mapping[str, tuple[Spec, ...]]) -> list[Example]:
    """Every example, a kind without one by its default value if it has one."""
    found: list[Example] = []
    for kind in ours(role):
        values = table.get(kind) or _default(role.kinds[kind])
        found += [Example(kind if i == 0 else f"{kind}{i + 1}", value) for i, value in enumerate(values)]
    return found


def _default(cls: Callable[[], Spec]) -> tuple[Spec, ...]:
    try:
        return (cls(),)
    except ValueError:
        return ()


def patterns() -> list[Example]:
    return _examples(Pattern, PATTERNS)


# Two blocks that differ: the stack's scheme, then each block's; None is the stack's.
MIXED: Mapping[str, tuple[Position | None, ...]] = {
    "mixed-bases": (Rotary(), None, Rotary(base=50.0)),
    "mixed-kinds": (Learned(), T5Buckets(buckets=8, max_distance=10), XPos(scale_base=16.0)),
    "mixed-none": (ALiBi(), NoPosition(), None),
}


def positions() -> list[Example]:
    return [*_examples(Position, POSITIONS), *named(MIXED)]


def biases() -> list[Example]:
    """The position schemes that bias scores, and score biases that are plain tensors."""
    schemes = [e for e in _examples(Position, POSITIONS) if type(e.value).bias is not Position.bias]
    return [Example("none", None), *schemes, Example("dense", "dense"), Example("keys", "keys")]


# Backends that serve some requests only, or some machines: tests/nn/kernels tests them separately. `flash` takes part
# if Triton runs, on a GPU or with TRITON_INTERPRET=1.
PARTIAL = (
    "flex",
    "capped",
    "decode",
    *(() if os.environ.get("TRITON_INTERPRET") == "1" or torch.cuda.is_available() else ("flash",)),
)


def backends(auto: bool = True) -> list[Example]:
    names = [name for name in BACKENDS if name not in PARTIAL]
    return [Example(name, name) for name in [*names, *(["auto"] if auto else [])]]


def named(table: Mapping[str, Any]) -> list[Example]:
    return [Example(label, value) for label, value in table.items()]


def words(*names: Any) -> list[Example]:
    return [Example(str(name), name) for name in names]


@lru_cache(maxsize=256)
def sees_ahead(pattern: Pattern, start: int, length: int = 16) -> bool:
    """Whether some token past the first `start` looks at one after it, or one of the first past those.

    Such a pattern can't be decoded step by step from a prompt of `start` tokens.
    """
    mask = pattern.mask(length)
    prompt = pattern_with_roles(pattern, length)
    ahead = mask.triu(1) | prompt.triu(1)
    return bool(ahead[start:].any() or ahead[:start, start:].any())


@lru_cache(maxsize=256)
def is_causal(pattern: Pattern, length: int = 8) -> bool:
    """Whether no token looks at one after it, if none carries a role."""
    return not bool(pattern.mask(length).triu(1).any())


def pattern_with_roles(pattern: Pattern, length: int) -> Any:
    """The (length, length) mask where the first `PREFIXED` tokens carry the role PREFIX, as every layout here has it."""
    from small import with_prefix

    from qkv.core.layout import Layout

    layout = with_prefix(Layout.full(length))
    return pattern.allowed(layout.queries(), layout.keys()).expand(1, length, length)[0]
