"""The fused step of a stack with its cache: described once, and called with what changes from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from ...attention import tap
from ...attention.attend import attend
from ...attention.multi_head import MultiHeadAttention, Pass
from ...core.layout import Layout
from ...kernels.cpu.few_queries import is_readable
from ...kernels.native import decoding
from ...kernels.native import decoding_step as native
from ...kernels.native.block_sparse import Strides
from ...kv_cache.cache import Cache
from ...kv_cache.full import CrossState, KeyValueState
from ...patterns.basic import Pattern
from ...positions.base import Bias, PositionModule
from ...positions.rotary import RotaryTurn
from .layers import Described, Unfit, hooks_of, layer

_GLOBAL_HOOKS = (hooks._global_forward_hooks, hooks._global_forward_pre_hooks)


def fused_step(
    stack: Any, x: Float[Tensor, "B T M"], layout: Layout, runs: Sequence[Pass], cache: Cache, count: int
) -> Float[Tensor, "B T M"] | None:
    """The output of the stack after its first `count` layers, by the kernels; None where the modules have to run."""
    most = native.MOST_TOKENS.get(x.dtype, 0)
    if x.shape[0] * x.shape[1] > most or x.device.type != "cpu" or layout.padding != "none":
        return None
    if torch.is_grad_enabled() or tap.recording() or not is_readable(x) or any(_GLOBAL_HOOKS):
        return None
    known = cache.fused
    if not isinstance(known, FusedStep) or not known.describes(stack):
        if known is Unfit or not native.ready():
            return None
        try:
            known = cache.fused = FusedStep(stack, cache)
        except Unfit:
            cache.fused = Unfit
            return None
    return known(x, layout, runs, cache, count)


class FusedStep:
    """The layers of a stack and their caches, described for the kernels.

    Layers whose masks and biases are the same share them: `groups` are lists of indices.
    """

    def __init__(self, stack: Any, cache: Cache) -> None:
        self.stack, self.known = stack, Described()
        crosses: list[Any] = [*cache.cross] or [None] * len(cache.layers)
        blocks = stack.layers
        described = [layer(*one, self.known) for one in zip(blocks, cache.layers, crosses, strict=True)]
        self.layers = (native.Layer * len(described))(*described)
        self.norm = self.known.norm(stack.norm)
        self.attention = [block.attention if "attention" in block.sublayers else None for block in blocks]
        self.cross = [block.cross if "cross" in block.sublayers else None for block in blocks]
        self.rows = max(self._rows(i) for i in range(len(described)))
        if len(stack.between) or stack.placement.streams > 1 or not all(map(_is_simple, stack.positions)):
            raise Unfit
        self.numbers: dict[int, tuple[Pattern, int]] = {}
        self.places = [tensor.data_ptr() for tensor in self.known.tensors]
        self.hooks = [table for block in blocks for table in hooks_of(block)] + hooks_of(stack.norm)

    def _rows(self, i: int) -> int:
        """Query rows that share a key-value head of layer i, for each token."""
        pairs = ((a.heads, a.kv_heads) for a in (self.layers[i].own, self.layers[i].cross))
        return max(heads // kv_heads if kv_heads else 1 for heads, kv_heads in pairs)

    def _number(self, pattern: Pattern) -> int:
        """Return an index that equal patterns share. Patterns are compared once per object, because that is slow."""
        known = self.numbers.get(id(pattern))
        if known is None:
            number = next((number for other, number in self.numbers.values() if other == pattern), len(self.numbers))
            known = self.numbers[id(pattern)] = pattern, number  # held, so that its id stays its own
        return known[1]

    def __deepcopy__(self, memo: object) -> None:
        """A copy of a cache is described again."""

    def describes(self, stack: nn.Module) -> bool:
        """Whether the description is of this stack, with the parameters where they are now."""
        return stack is self.stack and [tensor.data_ptr() for tensor in self.known.tensors] == self.places

    def __call__(
        self, x: Float[Tensor, "B T M"], layout: Layout, runs: Sequence[Pass], cache: Cache, count: int
    ) -> Float[Tensor, "B T M"] | None:
        """The output of the stack; None where this step is one for the modules."""
        if any(self.hooks) or x.shape[1] * self.rows > decoding.MOST_ROWS or self.stack.training:
            return None
        if any(run.attend is not attend or run.extras is not None or run.split is not None for run in runs):
            return None
        alive: list[Tensor] = []
        shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for i in range(len(self.layers)):
            ready = self._own(i, x, layout, runs[i], cache.layers[i], shared, alive)
            if not ready or (
                self.cross[i] is not None and not self._cross(i, x, layout, runs[i], cache.cross[i], shared, alive)
            ):
                return None
        out = x.float().contiguous()
        rows = out.view(-1, x.shape[-1])
        native.run(rows, self.layers, count, self.known.scratch, self.norm)
        return out.to(x.dtype)

    def _own(
        self,
        i: int,
        x: Tensor,
        layout: Layout,
        run: Pass,
        state: Any,
        shared: dict[tuple[Any, ...], tuple[Any, ...]],
        alive: list[Tensor],
    ) -> bool:
        """Describe this step of a layer's attention and cache; False if the kernels can't do it."""
        module = self.attention[i]
        if module is None:
            return True
        assert isinstance(state, KeyValueState) and isinstance(module, MultiHeadAttention)
        room = state.room(x.shape[1])
        if room is None:
            return False
        k, v, slot, keys = room
        made = self.layers[i]
        if k.dtype != x.dtype:
            return False
        made.k, made.v, made.slot = k.data_ptr(), v.data_ptr(), slot
        own = made.own
        own.batch, own.queries, own.keys, own.half_keys = *x.shape[:2], keys, k.dtype == torch.bfloat16
        own.k, own.v = _strides(k), _strides(v)
        tables = run.tables
        if tables is None:
            made.cos = made.sin = None
        else:
            cos, sin = tables
            alive += tables
            assert isinstance(run.position, RotaryTurn)
            if cos.dtype != torch.float32 or not (cos.is_contiguous() and sin.is_contiguous()):
                return False
            made.cos, made.sin, made.turned = cos.data_ptr(), sin.data_ptr(), run.position.width
            made.table_step, made.interleaved = cos.stride(0) if len(cos) > 1 else 0, run.position.interleaved
        self._hide(own, module, layout, state.layout, run, run.bias, shared, alive)
        return True

    def _cross(
        self,
        i: int,
        x: Tensor,
        layout: Layout,
        run: Pass,
        state: CrossState,
        shared: dict[tuple[Any, ...], tuple[Any, ...]],
        alive: list[Tensor],
    ) -> bool:
        """Describe this step of a layer's cross-attention; False if the kernels can't do it."""
        module = self.cross[i]
        assert isinstance(module, MultiHeadAttention)
        k, v = state.keys_values
        if k.dtype != x.dtype or k.stride(3) != 1 or v.stride(3) != 1 or len(k) != len(x):
            return False
        made = self.layers[i]
        made.cross_k, made.cross_v = k.data_ptr(), v.data_ptr()
        cross = made.cross
        cross.batch, cross.queries, cross.keys, cross.half_keys = *x.shape[:2], k.shape[1], k.dtype == torch.bfloat16
        cross.k, cross.v = (Strides(t.stride(0), t.stride(1), t.stride(2)) for t in (k, v))
        self._hide(cross, module, layout, state.layout, run, None, shared, alive)
        return True

    def _hide(
        self,
        to: decoding.Attention,
        module: MultiHeadAttention,
        layout: Layout,
        kv_layout: Layout,
        run: Pass,
        bias: Bias | None,
        shared: dict[tuple[Any, ...], tuple[Any, ...]],
        alive: list[Tensor],
    ) -> None:
        """Describe what a layer's queries see, and the bias of their scores."""
        pattern: Pattern = module.pattern
        about = (self._number(pattern), id(kv_layout), id(bias), module.n_heads)
        if about not in shared:
            scores = (to.batch, to.heads, to.queries, to.keys)
            mask = run.plan.mask(pattern, layout, kv_layout, module.n_heads)
            dense = None if bias is None else bias(layout.queries(), kv_layout.keys()).float()
            alive += [t for t in (mask, dense) if t is not None]
            shared[about] = (*decoding.placed(mask, scores), *decoding.placed(dense, scores))
        to.mask, to.mask_steps, to.bias, to.bias_steps = shared[about]


def _strides(buffer: Float[Tensor, "B K S D"]) -> Strides:
    """Steps of a cache's buffer from one row of the batch, token and head to the next."""
    return Strides(buffer.stride(0), buffer.stride(2), buffer.stride(1))


def _is_simple(position: PositionModule) -> bool:
    """Whether a position module turns no queries and keys, or as `Rotary` does."""
    if type(position) is RotaryTurn:
        return True
    turning = ("tables", "rotate", "rotate_queries", "rotate_keys")
    return all(getattr(type(position), name) is getattr(PositionModule, name) for name in turning)
