"""Layers whose attention is described together: they share a place in the cache, rotations, masks and biases."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....core.layout import Layout
from ...attention.mixer import Pass
from ...attention.multi_head import MultiHeadAttention
from ...kernels.native import decoding, quantized_kv
from ...kernels.native.structures import AttentionStruct, CodesStruct, LayerStruct, Strides
from ...kv_cache.cache import Cache
from ...kv_cache.full import CrossState, KeysValues, KeyValueState, SharedKeysValues
from ...kv_cache.quantized import CachedCodes, QuantizedState
from ...kv_cache.slot_table import SlotTable
from ...kv_cache.slots import SlotState
from ...patterns.algebra import Full
from ...positions.base import Bias
from ...positions.rotary import RotaryTurn

Shape = tuple[int, int, torch.dtype]  # rows, tokens of each, and their dtype


class LayerGroup:
    """Attention layers with one pattern, number of heads, position scheme and slot table, in an array of descriptions."""

    def __init__(
        self, indices: list[int], modules: list[MultiHeadAttention], layers: ctypes.Array[LayerStruct], name: str
    ) -> None:
        self.indices, self.first = indices, indices[0]
        self.layers: Any = layers
        self.pattern, self.heads = modules[0].pattern, modules[0].n_heads
        self.described = [getattr(layers[i], name) for i in indices]  # a part of the array
        self.shape: Shape | None = None  # of the tokens that are described
        self.hides = True  # whether a mask or bias is described
        offset = getattr(LayerStruct, name).offset
        self._mask, self._bias, self._queries, self._keys = (
            self._column(AttentionStruct, field, offset) for field in ("mask", "bias", "queries", "keys")
        )
        self._mask_steps, self._bias_steps = (
            self._column(AttentionStruct, field, offset, 4) for field in ("mask_steps", "bias_steps")
        )

    def _column(self, of: type[ctypes.Structure], name: str, offset: int = 0, count: int = 1) -> Any:
        """A field of all layers as an array (layers, count)."""
        field, step = getattr(of, name), ctypes.sizeof(LayerStruct)
        size = field.size // count
        return np.ndarray((len(self.layers), count), f"i{size}", self.layers, offset + field.offset, (step, size))

    def describe(self, shape: Shape) -> bool:
        """Describe the shape of the tokens and where keys and values are, if they changed; False if the kernels can't use
        them."""
        raise NotImplementedError

    def place(self, layout: Layout, run: Pass, alive: list[Tensor]) -> bool:
        """Describe what changes from step to step; False if the kernels can't do it."""
        raise NotImplementedError

    def _is_described(self, shape: Shape) -> bool:
        """Whether rows and dtype are as described; if so, their number of tokens is described now."""
        if self.shape is None or (self.shape[0], self.shape[2]) != (shape[0], shape[2]):
            return False
        if self.shape[1] != shape[1]:
            self._queries[self.indices] = shape[1]
            self.shape = shape
        return True

    def _hide(self, layout: Layout, kv_layout: Layout, run: Pass, bias: Bias | None, alive: list[Tensor]) -> None:
        """Describe what the queries see, and the bias of their scores."""
        mask = run.plan.mask(self.pattern, layout, kv_layout, self.heads)
        hides = mask is not None or bias is not None
        if not hides and not self.hides:
            return
        self.hides = hides
        first = self.described[0]
        scores = (first.batch, first.heads, first.queries, first.keys)
        dense = None if bias is None else bias(layout.queries(), kv_layout.keys()).float()
        alive += [t for t in (mask, dense) if t is not None]
        for to, steps, tensor in ((self._mask, self._mask_steps, mask), (self._bias, self._bias_steps, dense)):
            place, own = decoding.placed(tensor, scores)
            to[self.indices], steps[self.indices] = place or 0, list(own)


class SelfGroup(LayerGroup):
    """Self-attention, whose newest keys and values are in buffers with slots to spare.

    `describe` sets `slot`, where the first new token goes, and `keys`, the number of tokens to attend to.
    """

    slot = keys = 0

    def __init__(
        self,
        indices: list[int],
        modules: list[MultiHeadAttention],
        states: Sequence[SlotState[SlotTable]],
        layers: ctypes.Array[LayerStruct],
    ) -> None:
        super().__init__(indices, modules, layers, "own")
        self._first_state = states[0]
        self._slot, self._cos, self._sin, self._table_step = (
            self._column(LayerStruct, field) for field in ("slot", "cos", "sin", "table_step")
        )

    def _describe_buffers(self, i: int, shape: Shape, k: Tensor, v: Tensor) -> None:
        """Describe the buffers (B, K, slots, D) of layer i."""
        made = self.layers[i]
        own = made.own
        made.k, made.v = k.data_ptr(), v.data_ptr()
        own.batch, own.queries, own.half_keys = *shape[:2], k.dtype == torch.bfloat16
        own.k, own.v = (Strides(t.stride(0), t.stride(2), t.stride(1)) for t in (k, v))

    def place(self, layout: Layout, run: Pass, alive: list[Tensor]) -> bool:
        self._slot[self.indices], self._keys[self.indices] = self.slot, self.keys
        if run.tables is None:
            self._cos[self.indices] = self._sin[self.indices] = 0
        else:
            cos, sin = run.tables
            alive += run.tables
            if cos.dtype != torch.float32 or not (cos.is_contiguous() and sin.is_contiguous()):
                return False
            self._cos[self.indices], self._sin[self.indices] = cos.data_ptr(), sin.data_ptr()
            self._table_step[self.indices] = cos.stride(0) if len(cos) > 1 else 0
            assert isinstance(run.position, RotaryTurn)
            made = self.layers[self.first]
            if (made.turned, made.interleaved) != (run.position.width, run.position.interleaved):
                for i in self.indices:
                    self.layers[i].turned, self.layers[i].interleaved = run.position.width, run.position.interleaved
        self._hide(layout, self._first_state.layout, run, run.bias, alive)
        return True


class OwnGroup(SelfGroup):
    """Self-attention over all keys and values, or over ring buffers."""

    def __init__(
        self,
        indices: list[int],
        modules: list[MultiHeadAttention],
        states: list[KeyValueState],
        layers: ctypes.Array[LayerStruct],
    ) -> None:
        super().__init__(indices, modules, states, layers)
        self.states, self.buffers, self.slots = states, list[KeysValues](), 0

    def describe(self, shape: Shape) -> bool:
        place = self.states[0].place(shape[1])
        if place is None:
            return False
        self.slot, self.keys = place
        if self._is_described(shape) and self.keys <= self.slots and _hold(self.states, self.buffers):
            return True
        self.shape = None
        for own, state in zip(self.described, self.states, strict=True):
            if state.is_empty:
                rows, heads = shape[0], own.kv_heads
                state.first_buffers((rows, heads, own.width), (rows, heads, own.values), shape[2], padded=False)
        found = [state.buffers(shape[1]) for state in self.states]
        self.buffers = [each for each in found if each is not None]
        if len(self.buffers) < len(found) or not all(_is_plain(x, shape[2]) for both in self.buffers for x in both):
            return False
        self.slots = min(k.shape[2] for k, _ in self.buffers)
        for i, (k, v) in zip(self.indices, self.buffers, strict=True):
            self._describe_buffers(i, shape, k, v)
        self.shape = shape
        return True


class CodedGroup(SelfGroup):
    """Self-attention over quantized caches: codes, and a buffer of the newest tokens with slots to spare."""

    def __init__(
        self,
        indices: list[int],
        modules: list[MultiHeadAttention],
        states: list[QuantizedState],
        layers: ctypes.Array[LayerStruct],
    ) -> None:
        super().__init__(indices, modules, states, layers)
        self.states, self.held = states, list[tuple[CachedCodes, CachedCodes]]()
        self.codes = (CodesStruct * len(indices))()

    def describe(self, shape: Shape) -> bool:
        places = {state.place(shape[1]) for state in self.states}
        place = places.pop()
        if place is None or places:
            return False
        self.slot, self.keys = place
        if self._is_described(shape) and _hold(self.states, self.held):
            return True
        self.shape, self.held = None, [state.held() for state in self.states]
        if not all(_is_plain(own.newest, shape[2]) for both in self.held for own in both):
            return False
        for i, codes, (k, v) in zip(self.indices, self.codes, self.held, strict=True):
            self._describe_buffers(i, shape, k.newest, v.newest)
            if k.groups:
                quantized_kv.describe(codes, k.codes, v.codes, k.groups)
            self.layers[i].codes = ctypes.addressof(codes) if k.groups else None
        self.shape = shape
        return True

    def written(self, count: int) -> None:
        """Note that the kernels have written the newest token of the first `count` layers."""
        assert self.shape is not None
        for i, state in zip(self.indices, self.states, strict=True):
            if i < count:
                state.written(self.shape[1])


class CrossGroup(LayerGroup):
    """Cross-attention, whose keys and values come from the encoder. The rows of a source are queries of one sequence."""

    def __init__(
        self,
        indices: list[int],
        modules: list[MultiHeadAttention],
        states: list[CrossState],
        layers: ctypes.Array[LayerStruct],
    ) -> None:
        super().__init__(indices, modules, layers, "cross")
        self.states, self.kept = states, list[SharedKeysValues]()

    def describe(self, shape: Shape) -> bool:
        if self.shape == shape and _hold(self.states, self.kept):
            return True
        self.shape = None
        first = self.described[0]
        rows = self.states[0].shared.rows * shape[1] * (first.heads // first.kv_heads)
        shares = type(self.pattern) is Full and rows <= decoding.MOST_ROWS
        self.kept = [state.shared if shares else state.for_each_row() for state in self.states]
        for i, cross, (k, v, _, each) in zip(self.indices, self.described, self.kept, strict=True):
            if k.dtype != shape[2] or k.stride(3) != 1 or v.stride(3) != 1 or len(k) * each != shape[0]:
                return False
            if not (k.numel() and v.numel()):
                return False
            cross.batch, cross.queries, cross.keys = len(k), each * shape[1], k.shape[1]
            made = self.layers[i]
            made.cross_k, made.cross_v = k.data_ptr(), v.data_ptr()
            cross.half_keys = k.dtype == torch.bfloat16
            cross.k, cross.v = (Strides(t.stride(0), t.stride(1), t.stride(2)) for t in (k, v))
        self.shape = shape
        return True

    def place(self, layout: Layout, run: Pass, alive: list[Tensor]) -> bool:
        shared = self.kept[0]
        self._hide(layout if shared.rows == 1 else _ANY, shared.layout, run, None, alive)
        return True


_ANY = Layout.full(1)  # of queries that see whatever is there


def own_groups(
    blocks: Sequence[Any], position_of: Sequence[int], cache: Cache, layers: ctypes.Array[LayerStruct]
) -> list[SelfGroup]:
    """The groups of a stack's self-attention; `position_of` has the position scheme of each layer."""
    found: list[tuple[tuple[Any, ...], list[int]]] = []
    for i, block in enumerate(blocks):
        if "attention" in block.sublayers:
            state, module = cache.layers[i], block.attention
            assert isinstance(state, KeyValueState | QuantizedState)
            _add(found, (state.slot_table, type(state), position_of[i], module.n_heads, module.pattern), i)
    return [_own_group(indices, blocks, cache, layers) for _, indices in found]


def _own_group(indices: list[int], blocks: Sequence[Any], cache: Cache, layers: ctypes.Array[LayerStruct]) -> SelfGroup:
    states: list[Any] = [cache.layers[i] for i in indices]
    kind = CodedGroup if isinstance(states[0], QuantizedState) else OwnGroup
    return kind(indices, [blocks[i].attention for i in indices], states, layers)


def cross_groups(blocks: Sequence[Any], cache: Cache, layers: ctypes.Array[LayerStruct]) -> list[CrossGroup]:
    """The groups of a stack's cross-attention."""
    found: list[tuple[tuple[Any, ...], list[int]]] = []
    for i, block in enumerate(blocks):
        if "cross" in block.sublayers:
            _add(found, (block.cross.n_heads, block.cross.pattern), i)
    return [
        CrossGroup(indices, [blocks[i].cross for i in indices], [cache.cross[i] for i in indices], layers)
        for _, indices in found
    ]


def _add(found: list[tuple[tuple[Any, ...], list[int]]], key: tuple[Any, ...], i: int) -> None:
    """Add a layer to the group of its key, or to a new one. Patterns are equal or not, and can't be hashed."""
    for other, indices in found:
        if all(a is b or a == b for a, b in zip(other, key, strict=True)):
            indices.append(i)
            return
    found.append((key, [i]))


def _is_plain(buffer: Tensor, dtype: torch.dtype) -> bool:
    """Whether a kernel can write to a buffer: it has this dtype, isn't empty, and each number has its place."""
    return buffer.dtype == dtype and buffer.numel() > 0 and buffer.is_contiguous()


def _hold(states: Iterable[Any], buffers: Iterable[Any]) -> bool:
    """Whether each state still has its buffers."""
    return all(state.holds(own) for state, own in zip(states, buffers, strict=True))
