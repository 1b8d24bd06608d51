"""Stack of Transformer layers, an encoder or a decoder: embedding, positions, blocks, final norm."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...core.extras import Extras, Record, Reporter
from ...core.layout import Layout
from ...core.ranks import BeginSplit, LayerDraws, StackPart, TokenSplit
from ...core.spec import Cost, Spec, brief
from ..attention.mixer import Mixer, Pass
from ..attention.multi_head import Attention, MultiHeadAttention
from ..kernels.plan import Plan
from ..kv_cache.cache import Cache
from ..kv_cache.kinds import CacheKind
from ..layers.embedding import Embedding, Input, InputModule, through_wrapper
from ..layers.norm import NoNorm, Norm
from ..layers.patches import GridEmbedding, GridPosition
from ..patterns.documents import current_places, places_of, placing
from ..positions.absolute import NoPosition
from ..positions.base import Position, PositionModule, Widths
from .block import Block, BlockModule
from .fused_step import fused_encoding, fused_step
from .placement import Reversible
from .reversible import reversible

Recompute = Literal["none", "alternate", "blocks"]


class Stack(Spec, kind="stack"):
    """Blocks over embedded tokens. `position` is the scheme of every block without a separate one (`Block.position`).

    `order` is the index of each layer's block, so layers may share parameters: one block and the order [0, 0, 0, 0]
    is ALBERT or a Universal Transformer of 4 layers. By default each block is a layer.

    `drop_path` p is stochastic depth that grows with depth: p · l/L for the l-th of L blocks (Huang et al. 2016).
    In JSON, runs of equal blocks are written once: `[{"repeat": 6, "block": {…}}]`.
    """

    embedding: Input = Embedding()
    position: Position = NoPosition()
    blocks: tuple[Block, ...] = Field(min_length=1)
    order: tuple[int, ...] | None = Field(default=None, min_length=1, max_length=4096)
    norm: Norm = NoNorm()
    drop_path: float = Field(default=0.0, ge=0, lt=1)

    def bound(self, max_positions: int | None) -> int | None:
        """The longest context: `max_positions`, but None if positions rescale themselves for any length."""
        return None if self.position.unbounded else max_positions

    @model_validator(mode="after")
    def _one_rule(self) -> Stack:
        if self.drop_path and any(block.drop_path for block in self.blocks):
            raise ValueError("drop_path is set for the stack and for some of its blocks; leave one of them at 0")
        return self

    @model_validator(mode="after")
    def _in_order(self) -> Stack:
        if self.order is None:
            return self
        if set(self.order) != set(range(len(self.blocks))):
            raise ValueError(
                f"order names every block of the stack by its index, 0 to {len(self.blocks) - 1}, and this one names "
                f"{', '.join(map(str, sorted(set(self.order))))}"
            )
        if self.drop_path and len(self.order) > len(self.blocks):
            raise ValueError(
                "drop_path of a stack grows from layer to layer, which shared blocks can't; set drop_path of the blocks"
            )
        return self

    @model_validator(mode="after")
    def _has_a_grid(self) -> Stack:
        if isinstance(self.position, GridPosition) and self.embedding.grid is None:
            raise ValueError("position grid needs an embedding with a grid: patches, or states of an image")
        return self

    @model_validator(mode="after")
    def _streams(self) -> Stack:
        first = self.blocks[0].placement
        other = next((b.placement for b in self.blocks if b.placement.streams != first.streams), None)
        if other is not None:
            most, least = sorted((first, other), key=lambda placement: -placement.streams)
            raise ValueError(
                f"{most.kind} blocks have {most.streams} residual streams, and {least.kind} blocks {least.streams}; "
                f"make all blocks of a stack {most.kind}"
            )
        if self.tables > 1 and first.streams > 1:
            raise ValueError(
                f"position grid with `between` needs one residual stream, and {first.kind} blocks have more"
            )
        if self.embedding.further and first.streams > 1:
            raise ValueError(
                f"vectors of deep layers are added to one residual stream, and {first.kind} blocks have more"
            )
        return self

    @model_validator(mode="after")
    def _have_in_common(self) -> Stack:
        for name in self.shared:
            shapes = {block.attention.shared[name] for block in self.blocks if name in block.attention.shared}
            if len(shapes) > 1:
                shown = " and ".join(str(shape) for shape in sorted(shapes))
                raise ValueError(f"layers that share {name} need it in one shape, not {shown}")
        return self

    @field_validator("embedding", mode="before")
    @classmethod
    def _of_tokens(cls, value: Any) -> Any:
        """An embedding without a kind is one of tokens."""
        return {"kind": Embedding.kind, **value} if isinstance(value, Mapping) else value

    @field_validator("blocks", mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        out: list[Any] = []
        for item in value:
            if isinstance(item, dict) and "repeat" in item:
                count = item["repeat"]
                if set(item) != {"repeat", "block"} or not isinstance(count, int) or not 1 <= count <= 4096:
                    raise ValueError('a run of blocks is {"repeat": 1 … 4096, "block": {…}}')
                out.extend([Block.model_validate(item["block"])] * count)
            else:
                out.append(item)
            if len(out) > 4096:
                raise ValueError("a stack has at most 4096 blocks")
        return tuple(out)

    def _to_json_field(self, name: str) -> Any:
        if name != "blocks":
            return super()._to_json_field(name)
        runs = [(block, len(list(run))) for block, run in groupby(self.blocks)]
        return [{"repeat": n, "block": block} for block, n in runs]

    @property
    def block_of(self) -> Sequence[int]:
        """The index of each layer's block."""
        return range(len(self.blocks)) if self.order is None else self.order

    @property
    def layers(self) -> list[Block]:
        """The block of each layer."""
        return [self.blocks[i] for i in self.block_of]

    @property
    def n_layers(self) -> int:
        return len(self.block_of)

    @property
    def tables(self) -> int:
        """Number of position tables: one for the input, and with `between` one for each further layer."""
        return self.n_layers if isinstance(self.position, GridPosition) and self.position.between else 1

    @property
    def is_reversible(self) -> bool:
        return isinstance(self.blocks[0].placement, Reversible)

    @property
    def shared(self) -> dict[str, list[int]]:
        """Attention parameters that blocks share: for each name the indices of its blocks."""
        names = dict.fromkeys(name for block in self.blocks for name in block.attention.shared)
        return {name: [i for i, b in enumerate(self.blocks) if name in b.attention.shared] for name in names}

    def block(self, i: int) -> Block:
        """Return the i-th block with its share of the stack's stochastic depth."""
        if not self.drop_path:
            return self.blocks[i]
        return self.blocks[i].replace(drop_path=self.drop_path * (i + 1) / self.n_layers)

    @property
    def positions(self) -> tuple[Position, ...]:
        """The distinct position schemes: that of the stack, then others of its blocks."""
        return tuple(dict.fromkeys((self.position, *(self.position_of(block) for block in self.blocks))))

    def position_of(self, block: Block) -> Position:
        return self.position if block.position is None else block.position

    def with_position(self, position: Position) -> list[Block]:
        """Return the blocks that use a scheme."""
        return [block for block in self.blocks if self.position_of(block) == position]

    def widths(self, d_model: int, max_positions: int | None, position: Position) -> Widths:
        """Return the sizes that a position scheme depends on; of the heads, the largest of the blocks that use it."""
        heads = max(_heads(self.with_position(position), d_model), default=(1, d_model))
        return Widths(self.embedding.width_of(d_model), *heads, max_positions, grid=self.embedding.grid)

    def rotates(self, position: Position, d_model: int, max_positions: int | None) -> bool:
        """Whether a position scheme turns queries or keys, which takes time in each layer."""
        with torch.device("meta"):
            return _turns(position.module(self.widths(d_model, max_positions, position)))

    def cost(self, d_model: int, max_positions: int | None, vocab_size: int, tokens: int = 0, memory: int = 0) -> Cost:
        """Cost of one sequence of `tokens`, with `memory` tokens of an encoder, without the token table."""
        embedding = self.embedding
        total = embedding.cost(d_model, vocab_size, tokens) + self.norm.cost(d_model, tokens)
        for position in self.positions:
            table = Cost(position.n_parameters(self.widths(d_model, max_positions, position)))
            total += table * (self.tables if position == self.position else 1)
        for block, run in groupby(self.layers):
            count = len(list(run))
            total += block.cost(d_model, tokens, pairs(block.attention, tokens), memory, tokens * memory) * count
        for i, times in Counter(self.order).items():  # parameters that layers share count once
            own = self.blocks[i].cost(d_model)
            total += Cost(-own.parameters, idle=-own.idle) * (times - 1)
        for name, (_, *others) in self.shared.items():  # so do attention parameters that blocks share
            total += Cost(-sum(math.prod(self.blocks[i].attention.shared[name]) for i in others))
        return total


def pairs(mixer: Mixer, tokens: int) -> int:
    """Number of (query, key) pairs that the pattern allows; 0 for a mixer without a pattern."""
    pattern = getattr(mixer, "pattern", None)
    return pattern.pairs(tokens) if pattern is not None and tokens else 0


def about_cache(stack: Stack, d_model: int, how: CacheKind, dtype: torch.dtype, cross: bool) -> dict[str, Any]:
    """What a cache is of, for a file to agree with."""
    layers = [_about_layer(block.attention, d_model) for block in stack.layers]
    return {"layers": layers, "cache": how.to_dict(), "dtype": str(dtype).removeprefix("torch."), "cross": cross}


def _about_layer(mixer: Mixer, d_model: int) -> dict[str, Any]:
    if not isinstance(mixer, Attention):
        return {"mixer": mixer.to_dict()}
    _, heads, d_key, d_value = mixer.widths(d_model)
    return {"mixer": mixer.kind, "heads": heads, "d_key": d_key, "d_value": d_value, "window": mixer.remembers()}


def _heads(blocks: Sequence[Block], d_model: int) -> set[tuple[int, int]]:
    """Every (number, width) of heads among the blocks."""
    return {heads for block in blocks if (heads := block.attention.heads(d_model)) is not None}


def _check_heads(spec: Stack, scheme: Position, position: PositionModule, d_model: int, name: str) -> None:
    """Check that the blocks of a position scheme have equal heads, and mixers that can use it. Raises ValueError."""
    blocks = spec.with_position(scheme)
    heads = _heads(blocks, d_model)
    own = scheme != spec.position
    name = f"{name}.blocks.{spec.blocks.index(blocks[0])}" if own else name
    if own and does(position, "embed"):
        raise ValueError(
            f"{name}.position {brief(scheme)} is added to the input, which only the stack's position can be; give the block "
            "rotary or biased positions, or none"
        )
    turns = _turns(position)
    biases = does(position, "bias")
    unequal = len(heads) > 1 if biases else len({width for _, width in heads}) > 1
    if (turns or biases) and unequal:
        shown = ", ".join(f"{h} of width {d}" for h, d in sorted(heads))
        equal = "equal heads" if biases else "heads of equal width"
        raise ValueError(f"{name}.position {brief(scheme)} needs blocks with {equal}, but there are {shown}")
    mixers = [block.attention for block in blocks if "attention" in block.sublayers()]
    if turns and mixers and not heads:
        raise ValueError(
            f"{name}.position {brief(scheme)} rotates heads, and no block of this stack has any; take none, sinusoidal or "
            "learned positions"
        )
    tied = next((mixer for mixer in mixers if mixer.ties_queries_and_keys), None)
    if tied is not None and (does(position, "rotate_queries") or does(position, "rotate_keys")):
        raise ValueError(
            f"{name}.position {brief(scheme)} rotates queries and keys differently, and in {tied.kind} they are the same "
            "vectors; take rotary positions"
        )
    unbiased = next((mixer for mixer in mixers if not mixer.adds_bias), None)
    if biases and unbiased is not None:
        raise ValueError(
            f"{name}.position {brief(scheme)} is added to the scores of token pairs, which {unbiased.kind} does not have; "
            "take none, sinusoidal, learned or rotary positions (or set `adds_bias = True` in your own mixer whose "
            "module adds run.bias)"
        )


def _turns(position: PositionModule) -> bool:
    """Whether a position module changes queries or keys."""
    return any(does(position, what) for what in ("rotate", "rotate_queries", "rotate_keys"))


def does(position: PositionModule, what: str) -> bool:
    """Whether a position module overrides a method, in its class or as an attribute."""
    return getattr(getattr(position, what), "__func__", None) is not getattr(PositionModule, what)


def _checkpointed(block: BlockModule, x: Tensor, run: Pass) -> Tensor:
    """Apply a block and recompute its activations in backward; its extra losses come from the first run."""

    places = current_places()

    def once(x: Tensor) -> tuple[Tensor, list[Record]]:
        fresh = run.afresh()
        with placing(places):
            out = block(x, fresh)  # first, as it fills `extras`
        return out, [] if fresh.extras is None else [tuple(record) for _, record in fresh.extras.records]

    x, records = checkpoint(once, x, use_reentrant=False)
    for record in records:
        assert run.extras is not None
        run.extras.add(cast(Reporter, block.feedforward), record)
    return x


class StackModule(nn.Module):
    """The module of `Stack`. `recompute` is the activation checkpointing policy; reversible blocks always recompute.

    Where several ranks train the stack together (`parallel.model_parallel`), `begin_split` divides the tokens over them, and
    `part` says which of the layers this rank has.
    """

    recompute: Recompute = "none"
    begin_split: BeginSplit | None = None
    part: StackPart | None = None

    def __init__(self, spec: Stack, vocab_size: int, d_model: int, max_positions: int | None, name: str) -> None:
        super().__init__()
        self.embedding = spec.embedding.module(vocab_size, d_model)
        positions = spec.positions
        widths = [spec.widths(d_model, max_positions, p)._replace(bidirectional=name != "decoder") for p in positions]
        self.position, *others = (p.module(w) for p, w in zip(positions, widths, strict=True))
        self.block_positions = nn.ModuleList(others)
        self.between = nn.ModuleList(spec.position.module(widths[0]) for _ in range(1, spec.tables))
        self.embedding.over_axes = any(module.reads_axes for module in (self.position, *others))
        for scheme, module in zip(positions, (self.position, *others), strict=True):
            _check_heads(spec, scheme, module, d_model, name)
        self.position_of = [positions.index(spec.position_of(block)) for block in spec.layers]
        count = len(spec.blocks)
        self.blocks = nn.ModuleList(spec.block(i).module(d_model, f"{name}.blocks.{i}") for i in range(count))
        self.block_of = list(spec.block_of)
        self.shared = spec.shared
        self.tie()
        self.norm = spec.norm.module(d_model)
        self.reversible, self.placement = spec.is_reversible, spec.blocks[0].placement

    def tie(self) -> None:
        """Share the attention parameters that blocks have in common. Call it again after parameters were replaced."""
        if callable(tie := getattr(self.embedding, "tie", None)):
            tie()
        for name, (first, *others) in self.shared.items():
            for i in others:
                setattr(self.block(i).attention, name, getattr(self.block(first).attention, name))

    def forward(
        self,
        ids: Int[Tensor, "B T"] | Float[Tensor, "B N P"],
        layout: Layout,
        memory: Float[Tensor, "B S M"] | None = None,
        memory_layout: Layout | None = None,
        token_types: Int[Tensor, "B T"] | None = None,
        cache: Cache | None = None,
        extras: Extras | None = None,
        layers: int | None = None,
        split: TokenSplit | None = None,
        after: dict[int, Tensor] | None = None,
    ) -> Float[Tensor, "B T M"]:
        """The output after all layers, or with a cache after the first `layers`. The values of `after` are replaced by the
        states after the layers that are its keys. On one rank of a pipeline, ends with an exception if a later rank takes
        over."""
        split, part = self.begin_split(layout) if self.begin_split is not None else split, self.part
        runs = self._passes(layout, memory, memory_layout, extras, split)
        count, draws = len(runs) if layers is None else layers, LayerDraws()
        if part is not None and part.is_earlier:
            draws.begin(len(runs))
            return part.output(extras)
        if part is not None and part.is_later:
            part.hand_over([memory], extras)
        deep: tuple[Tensor, ...] = ()
        places = places_of(layout) if self.training else None
        if part is None or part.begins:
            with placing(places):
                x, deep = self._embedded(ids, layout, token_types)
            x = x if split is None else split.own(x)
            x = self.placement.enter(x) if self.placement.streams > 1 else x
        else:
            x = part.take_up(extras)
        training = torch.is_grad_enabled()
        whole = split is None and part is None and after is None and not deep
        if not training and whole:  # one kernel for all layers, if it serves them
            fused = None if cache is None else fused_step(self, x, layout, runs, cache, count)
            fused = fused_encoding(self, x, layout, runs, count, cache) if fused is None else fused
            if fused is not None:
                return fused
        with placing(places) if split is None else split.own_randomness():
            if self.reversible and training and cache is None and part is None:
                x = reversible(self.layers, x, runs)
            else:
                for i in range(count) if part is None else part.layers:
                    draws.begin(i)
                    x = x if i == 0 or not len(self.between) else self._with_positions(x, layout, i, split)
                    block = self.blocks[self.block_of[i]]
                    if cache is not None:
                        x = block(x, runs[i], cache.layers[i], cache.cross[i] if cache.cross else None)
                    elif self.training and self._recomputes(i):
                        x = _checkpointed(cast(BlockModule, block), x, runs[i])
                    else:
                        x = block(x, runs[i])
                    x = x + deep[i] if i < len(deep) else x
                    if after is not None and i in after:
                        after[i] = x
        draws.begin(len(runs))
        if part is not None and not part.ends:
            part.hand_over([x, memory], extras)
        x = self.norm(self.placement.leave(x) if self.placement.streams > 1 else x)
        return x if split is None else split.whole(x)

    def _embedded(
        self, ids: Tensor, layout: Layout, token_types: Tensor | None
    ) -> tuple[Float[Tensor, "B T M"], tuple[Tensor, ...]]:
        """The input of the first layer, and what is added to the outputs of layers."""
        embedding, position = self.embedding, self.position.embed(layout)
        if not isinstance(embedding, InputModule):
            return through_wrapper(embedding, ids, position, token_types), ()
        own = {"layout": layout} if embedding.takes_layout else {}
        x = embedding(ids, position, token_types, **own)
        return x if isinstance(x, tuple) else (x, ())

    def _with_positions(self, x: Tensor, layout: Layout, i: int, split: TokenSplit | None) -> Tensor:
        """The input of layer i with its own table of positions added."""
        further = cast(GridEmbedding, self.between[i - 1]).embed(layout).to(x.dtype)
        return x + (further if split is None else split.own(further))

    def _passes(
        self,
        layout: Layout,
        memory: Tensor | None,
        memory_layout: Layout | None,
        extras: Extras | None,
        split: TokenSplit | None = None,
    ) -> list[Pass]:
        """Return the `Pass` of each layer: layers with the same position scheme share one, and all share a plan."""
        plan, runs, passes = Plan(), [], []
        for scheme in (self.position, *self.block_positions):
            run = Pass.over(layout, scheme, plan)
            run.memory, run.memory_layout, run.extras = memory, memory_layout, extras
            if split is not None:
                split.share(run)
            runs.append(run)
        for i in self.position_of:
            passes.append(runs[i])
        return passes

    @property
    def positions(self) -> list[PositionModule]:
        """The modules of the distinct position schemes, as `Stack.positions`."""
        return [self.position, *cast(Iterable[PositionModule], self.block_positions)]

    def remember(self, memory: Float[Tensor, "B S M"], layout: Layout, cache: Cache) -> None:
        """Let every layer's cross-attention remember an encoder's output. Raises ValueError for a layer that can't."""
        for i, block, state in zip(self.block_of, self.layers, cache.cross, strict=True):
            if isinstance(block.cross, MultiHeadAttention):
                block.cross.remember(memory, layout, state)
            elif "cross" in block.sublayers:
                raise ValueError(
                    f"decoder.blocks.{i}.cross is a {type(block.cross).__name__}, which keeps no keys and values of the "
                    "source, so it can't be stepped through; only attention decodes across two sequences"
                )

    def check_cache(self, how: CacheKind, max_positions: int | None) -> None:
        """Raise ValueError if the positions don't work with a kind of cache; biases count if a layer uses them."""
        for i, position in enumerate(self.positions):
            how.check(position, max_positions)
            if i in self.position_of:
                how.check_bias(position)

    def _recomputes(self, i: int) -> bool:
        """Whether backward recomputes layer i; reversible layers have their own way."""
        return not self.reversible and (self.recompute == "blocks" or (self.recompute == "alternate" and i % 2 == 0))

    @property
    def layers(self) -> list[BlockModule]:
        """The block of each layer; a shared block occurs several times."""
        return [self.block(i) for i in self.block_of]

    def block(self, i: int) -> BlockModule:
        module = self.blocks[i]
        assert isinstance(module, BlockModule)
        return module
