"""The fused step of a stack with its cache: described once, and called with what changes from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.modules import module as hooks

from ....core.layout import Layout
from ...attention import tap
from ...attention.attend import attend
from ...attention.mixer import Pass
from ...kernels.cpu.few_queries import is_readable
from ...kernels.native import decoding, quantized_kv, row_selection
from ...kernels.native import decoding_step as native
from ...kernels.native.products import ORDER, PANELS
from ...kv_cache.cache import Cache
from ...kv_cache.full import CrossState, KeyValueState
from ...kv_cache.quantized import QuantizedState
from ...kv_cache.slots import selecting_kernels
from ..block import BlockModule
from .description import LayerStack, description_of
from .groups import CodedGroup, LayerGroup, cross_groups, own_groups
from .layers import Unfit

_GLOBAL_HOOKS = (hooks._global_forward_hooks, hooks._global_forward_pre_hooks)

selecting_kernels.append(row_selection.select_rows_if_served)  # for the caches of fused steps


def fused_step(
    stack: LayerStack, x: Float[Tensor, "B T M"], layout: Layout, runs: Sequence[Pass], cache: Cache, count: int
) -> Float[Tensor, "B T M"] | None:
    """The output of the stack after its first `count` layers, by the kernels; None if the modules have to run."""
    most = native.MOST_TOKENS.get(x.dtype, 0)
    if not 0 < x.shape[0] * x.shape[1] <= most or x.device.type != "cpu" or layout.padding != "none":
        return None
    if ORDER.now == PANELS:  # which is for whole sequences
        return None
    if torch.is_grad_enabled() or tap.recording() or not is_readable(x) or any(_GLOBAL_HOOKS):
        return None
    known = cache.fused
    if not isinstance(known, FusedStep) or not known.describes(stack, cache.settled):
        if known is Unfit or not native.ready():
            return None
        try:
            known = cache.fused = FusedStep(stack, cache)
        except Unfit:
            cache.fused = Unfit  # `reason_against` says why
            return None
    return known(x, layout, runs, cache, count)


def reason_against(stack: LayerStack, cache: Cache | None = None) -> str | None:
    """Return what the kernels lack for decoding steps of a stack with such a cache, as a noun; None if they have all.

    Steps are by kernels only on CPUs, in fp32 or bf16, without gradients, and while nothing watches the modules.
    """
    if not native.ready():
        return "a C++ library for this machine"
    about = description_of(stack)
    if not about.fits:
        return about.reason
    try:
        _check(stack.layers, cache)
    except Unfit as lacking:
        return str(lacking)
    return None


class FusedStep:
    """The layers of a stack and a cache, described for the kernels.

    A step touches as few objects as it can: the weights that it reads push everything else out of the processor's
    caches, and each object costs a read from memory. What may change is checked once for a search (`Cache.settle`);
    buffers are described when they are replaced; and layers that share a place in the cache, rotations, masks and
    biases are described together.
    """

    def __init__(self, stack: LayerStack, cache: Cache) -> None:
        self.stack, self.about = stack, description_of(stack)
        blocks = stack.layers
        _check(blocks, cache)
        if not self.about.fits:
            raise Unfit(self.about.reason)
        self.layers = self.about.layers()
        self.own = own_groups(blocks, self.about.position_of, cache, self.layers)
        self.cross = cross_groups(blocks, cache, self.layers)
        self.coded = [group for group in self.own if isinstance(group, CodedGroup)]
        self.rows = max(self._rows(i) for i in range(len(blocks)))
        schemes = self.about.position_of
        self.first_of = [schemes.index(i) for i in sorted(set(schemes))]  # a layer of each scheme
        self.checked = False  # since the weights and hooks were settled

    def _rows(self, i: int) -> int:
        """Query rows that share a key-value head of layer i, for each token."""
        pairs = ((a.heads, a.kv_heads) for a in (self.layers[i].own, self.layers[i].cross))
        return max(heads // kv_heads if kv_heads else 1 for heads, kv_heads in pairs)

    def __deepcopy__(self, memo: object) -> None:
        """A copy of a cache is described again."""

    def describes(self, stack: LayerStack, settled: bool) -> bool:
        """Whether the description is of this stack, with the parameters where they are now."""
        if settled and self.checked:
            return stack is self.stack
        self.checked = False
        return stack is self.stack and self.about.is_in_place()

    def __call__(
        self, x: Float[Tensor, "B T M"], layout: Layout, runs: Sequence[Pass], cache: Cache, count: int
    ) -> Float[Tensor, "B T M"] | None:
        """The output of the stack; None if this step is one for the modules."""
        if not self.checked and (self.stack.training or self.about.is_watched()):
            return None
        self.checked = cache.settled
        if x.shape[1] * self.rows > decoding.MOST_ROWS:
            return None
        for i in self.first_of:
            run = runs[i]
            if run.attend is not attend or run.extras is not None or run.split is not None:
                return None
        shape = (*x.shape[:2], x.dtype)
        groups: tuple[LayerGroup, ...] = (*self.own, *self.cross)
        for group in groups:
            if not group.describe(shape):
                return None
        alive: list[Tensor] = []
        for group in groups:
            if not group.place(layout, runs[group.first], alive):
                return None
        out = x.float().contiguous()
        rows = out.view(-1, x.shape[-1])
        native.run(rows, self.layers, count, self.about.known.scratch, self.about.norm)
        for coded in self.coded:
            coded.written(count)
        return out.to(x.dtype)


def _check(blocks: Sequence[BlockModule], cache: Cache | None) -> None:
    """Raise `Unfit` if the kernels can't use the states of a cache."""
    for i, block in enumerate(blocks if cache is not None else ()):
        assert cache is not None
        state = cache.layers[i]
        if "attention" in block.sublayers and type(state) is QuantizedState:
            _check_codes(state.group, block.attention)
        elif "attention" in block.sublayers and type(state) is not KeyValueState:
            raise Unfit(f"caches of the kind {type(state).__name__}")
        if "cross" in block.sublayers and type(cache.cross[i]) is not CrossState:
            raise Unfit(f"caches of the kind {type(cache.cross[i]).__name__} for the source")


def _check_codes(group: int, module: Any) -> None:
    """Raise `Unfit` for quantized caches that other kernels read, or none."""
    if group > quantized_kv.LARGEST:
        raise Unfit(f"quantized caches with groups of more than {quantized_kv.LARGEST} tokens")
    if quantized_kv.is_for_amx(module.d_head, group) or quantized_kv.is_for_amx(module.d_value, group):
        raise Unfit("quantized caches that a matrix unit reads")
