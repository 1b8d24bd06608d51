"""A decoding step of rows that each have a cache, in one C++ call: requests that come and go while others are decoded.

The rows of an ordinary step share one cache, so a row that joins or leaves moves all others. Here each row's keys and values
stay where they are, and the kernel is told where. A row's numbers don't depend on the other rows: attention reads the row's
own slots in their order, and products are added up in one order whatever the number of rows (`Order` in products.cpp).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from ....core.layout import Layout
from ...attention import tap
from ...attention.mixer import Pass
from ...kernels.native import decoding_step as native
from ...kernels.native.decoding import placed
from ...kernels.native.products import ANY, FEW, in_one_order
from ...kernels.native.structures import CacheRow, LayerStruct, Strides
from ...kv_cache.cache import Cache
from ...kv_cache.full import CrossState, KeyValueState
from ...patterns.algebra import Full, parts_of
from ...patterns.basic import Causal, Window
from ...positions.base import Bias, PositionModule
from ...positions.rotary import RotaryTurn
from ..block import BlockModule
from .description import LayerStack, description_of
from .step import reason_against

_FIELDS = [name for name, *_ in CacheRow._fields_]
_SLOT, _KEYS = _FIELDS.index("slot"), _FIELDS.index("keys")
_GLOBAL_HOOKS = (hooks._global_forward_hooks, hooks._global_forward_pre_hooks)


class EmbeddingStack(LayerStack, Protocol):
    """A stack with its input layer, whose first positions are added to the tokens."""

    embedding: Any
    position: PositionModule


class SteppedModel(Protocol):
    """A model with a decoder and a head that predicts the next token."""

    @property
    def decoder(self) -> nn.Module | None: ...
    @property
    def head(self) -> nn.Module | None: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...


class RowCache:
    """The cache of one row, and where the kernel finds its keys and values, layer by layer."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._own: np.ndarray | None = None  # (layers, fields of `CacheRow`)
        self._cross: np.ndarray | None = None
        self._sources: list[tuple[Tensor, ...]] = []  # the encoder's keys and values of each layer
        self._slots = 0  # that the smallest buffer has

    def admit(self, layers: ctypes.Array[LayerStruct], dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray | None]:
        """Add a token: where it goes and what it attends to in each layer, and where the source is, if there is one."""
        self.cache.admit(None, 1, torch.device("cpu"))
        states: list[KeyValueState] = self.cache.layers  # type: ignore[assignment]  # `takes` has checked them
        if self._own is None or self.cache.length > self._slots:
            self._find(states, layers, dtype)
        assert self._own is not None
        known: dict[int, tuple[int, int]] = {}
        for state in states:
            if id(state.slot_table) not in known:
                place = state.place(1)
                assert place is not None, "one new token replaces at most one"
                known[id(state.slot_table)] = place
        if len(known) == 1:
            self._own[:, _SLOT], self._own[:, _KEYS] = next(iter(known.values()))
        else:
            for i, state in enumerate(states):
                self._own[i, _SLOT], self._own[i, _KEYS] = known[id(state.slot_table)]
        return self._own, self._cross

    def _find(self, states: Sequence[KeyValueState], layers: ctypes.Array[LayerStruct], dtype: torch.dtype) -> None:
        self._own, self._slots = np.zeros((len(states), len(_FIELDS)), np.int64), 1 << 62
        for row, state, made in zip(self._own, states, layers, strict=True):
            own, found = made.own, state.buffers(1)
            if found is None:
                shapes = [(1, own.kv_heads, width) for width in (own.width, own.values)]
                found = state.first_buffers(shapes[0], shapes[1], dtype, False)
            k, v = found
            row[:4] = k.data_ptr(), v.data_ptr(), k.stride(1), v.stride(1)
            if state.slot_table.size is None:
                self._slots = min(self._slots, k.shape[2])
        if self.cache.cross:
            self._cross = np.zeros_like(self._own)
            self._sources = [tuple(x.contiguous() for x in source.keys_values) for source in self.cache.cross]
            for row, (k, v) in zip(self._cross, self._sources, strict=True):
                row[:] = k.data_ptr(), v.data_ptr(), k.stride(2), v.stride(2), 0, k.shape[1]


class FusedRows:
    """The decoder of a model, described for steps of rows.

    `serves` says whether the kernels have all that it does, and `reason` what they lack if not. The head has to be a
    `LanguageModelHead`. With `in_order` a
    row's numbers are the same to the bit whatever other rows there are; without it products are as fast as they can be.
    """

    def __init__(self, model: SteppedModel, in_order: bool = True) -> None:
        self.model, self.order = model, FEW if in_order else ANY
        self.dtype, self.device = model.dtype, model.device
        stack: Any = model.decoder
        self.reason = "models without a decoder" if stack is None else _lacking(model, stack)
        self.serves = self.reason is None
        if not self.serves:
            return
        self.stack: EmbeddingStack = stack
        self.about = description_of(stack)
        self.layers = self.about.layers()
        half = self.dtype == torch.bfloat16
        for made, i in zip(self.layers, self.about.position_of, strict=True):
            for each in (made.own, made.cross):
                each.batch, each.queries, each.half_keys = 1, 1, half
            made.own.k, made.own.v = Strides(0, made.own.width, 0), Strides(0, made.own.values, 0)
            made.cross.k = Strides(0, made.cross.kv_heads * made.cross.width, 0)
            made.cross.v = Strides(0, made.cross.kv_heads * made.cross.values, 0)
            position = stack.positions[i]
            if isinstance(position, RotaryTurn):
                made.turned, made.interleaved = position.width, position.interleaved

    def takes(self, cache: Cache) -> bool:
        """Return whether a step can include a row with this cache. The cache may be empty if it keeps all tokens."""
        dtype = self.dtype
        for state in cache.layers:
            if type(state) is not KeyValueState:
                return False
            kept = state.whole_buffers()
            if kept is None and state.slot_table.size is not None:
                return False
            if kept is not None and any(x.dtype != dtype or not x.is_contiguous() for x in kept):
                return False
        return all(
            type(source) is CrossState and all(x.dtype == dtype for x in source.keys_values) for source in cache.cross
        )

    def ready(self) -> bool:
        """Whether nothing watches or has changed the model, so the description holds."""
        watched = tap.recording() or any(_GLOBAL_HOOKS) or self.about.is_watched() or not self.about.is_in_place()
        return not (watched or self.stack.training or torch.is_grad_enabled())

    def step(self, ids: Int[Tensor, " B"], rows: Sequence[RowCache]) -> Float[Tensor, "B V"]:
        """Feed the next token of every row: the logits of the one after it. `ready` and `takes` are true."""
        stack, head = self.stack, self.model.head
        assert head is not None
        layout = Layout(torch.tensor([[row.cache.length] for row in rows]), padding="none", sequential=True)
        given = {"layout": layout} if stack.embedding.takes_layout else {}
        with in_one_order(self.order):
            x = stack.embedding(ids[:, None], stack.position.embed(layout), None, **given)
            out = x.float().contiguous()
            places = [row.admit(self.layers, self.dtype) for row in rows]
            alive = self._place(places, layout)
            width = out.shape[-1]
            native.run(out.view(-1, width), self.layers, len(self.layers), self.about.known.scratch, self.about.norm)
            del alive
            logits: Tensor = head(out.to(x.dtype)).squeeze(1)
        return logits

    def _place(self, places: Sequence[tuple[np.ndarray, np.ndarray | None]], layout: Layout) -> list[object]:
        """Describe where keys and values are, and rotations. Returns what has to live until the step ends."""
        own = np.stack([row for row, _ in places])
        sources = [row for _, row in places if row is not None]
        cross = np.stack(sources) if sources else None
        passes = [Pass.over(layout, scheme) for scheme in self.stack.positions]
        tables = [run.tables for run in passes]
        biases = [None if run.bias is None else _of_rows(run.bias, layout) for run in passes]
        for i, made in enumerate(self.layers):
            step = i * ctypes.sizeof(CacheRow)
            made.apart, made.apart_step = own.ctypes.data + step, own.shape[1]
            made.cross_apart = None if cross is None else cross.ctypes.data + step
            bias = biases[self.about.position_of[i]]
            if bias is not None:
                made.own.bias, made.own.bias_steps = placed(bias, bias.shape)
            turns = tables[self.about.position_of[i]]
            if turns is not None:
                cos, sin = turns
                made.cos, made.sin = cos.data_ptr(), sin.data_ptr()
                made.table_step = cos.stride(0) if len(cos) > 1 else 0
        return [own, cross, tables, biases]


def _of_rows(bias: Bias, layout: Layout) -> Float[Tensor, "B H 1 S"]:
    """The bias of each row's scores with the tokens from its first one; those after its own are not read."""
    longest = int(layout.positions.max()) + 1
    return bias(layout.queries(), Layout.full(longest).keys()).float()


def _lacking(model: SteppedModel, stack: EmbeddingStack) -> str | None:
    """What the kernels lack for a model's rows, as a noun; None if they have all."""
    if model.device.type != "cpu" or model.dtype not in native.MOST_TOKENS:
        return f"models of {model.dtype} on {model.device}"
    lacking = reason_against(stack)
    if lacking is not None:
        return lacking
    if any(isinstance(scheme, RotaryTurn) and scheme.scaling.by_length for scheme in stack.positions):
        return "rotations that depend on the length of the text"
    unseeing = next((block for block in stack.layers if not _sees_all(block)), None)
    if unseeing is not None:
        return "layers without attention, or that don't see all tokens in their cache"
    biased = {id(scheme) for scheme in stack.positions if type(scheme).bias is not PositionModule.bias}
    by_layer = [stack.positions[i] for i in stack.position_of]
    if any(id(scheme) in biased and _has_window(block) for scheme, block in zip(by_layer, stack.layers, strict=True)):
        return "a bias on scores in a window"
    return None


def _sees_all(block: BlockModule) -> bool:
    """Whether a new token sees all the tokens that its layer keeps, and all of the source."""
    if "attention" not in block.sublayers:
        return False
    kinds = _kinds(block)
    sees_own = Causal in kinds and set(kinds) <= {Causal, Window} and kinds.count(Window) <= 1
    return sees_own and ("cross" not in block.sublayers or type(block.cross.pattern) is Full)  # type: ignore[union-attr]


def _has_window(block: BlockModule) -> bool:
    return Window in _kinds(block)


def _kinds(block: BlockModule) -> list[type]:
    return [type(part) for part in parts_of(block.attention.pattern)]  # type: ignore[arg-type]
