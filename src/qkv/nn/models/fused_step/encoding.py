"""Run all layers of a stack over whole sequences in one C++ call: encoders, scoring without a cache, and prompts.

Padding is removed first. A prompt's keys and values are written to an empty cache. In the order `PANELS`, a prompt can also
be read piece by piece: its tokens then get the same numbers, to the bit, wherever it is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from threading import Lock
from types import NoneType

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.modules import module as hooks

from ....core.layout import Layout
from ...attention import tap
from ...attention.attend import attend
from ...attention.mixer import Pass
from ...kernels.cpu.few_queries import is_readable
from ...kernels.native import encoding as native
from ...kernels.native.decoding import placed
from ...kernels.native.layers import CROSS, FEED_FORWARD, OWN, is_by_panels
from ...kernels.native.products import FULL, ORDER, PANELS
from ...kernels.native.structures import LayerStruct, Strides
from ...kv_cache.cache import Cache
from ...kv_cache.full import KeyValueState
from ...patterns.algebra import Full
from ...patterns.basic import Causal
from ...positions.rotary import RotaryTurn
from .description import Description, LayerStack, description_of

_GLOBAL_HOOKS = (hooks._global_forward_hooks, hooks._global_forward_pre_hooks)
_DTYPES = (torch.float32, torch.bfloat16)
_LONGEST_BIAS = 1024  # tokens, of all pairs of which a bias is computed at once


def fused_encoding(
    stack: LayerStack,
    x: Float[Tensor, "B T M"],
    layout: Layout,
    runs: Sequence[Pass],
    count: int,
    cache: Cache | None = None,
) -> Float[Tensor, "B T M"] | None:
    """The output after the first `count` layers and the norm, 0 at padding; None if the modules have to run."""
    if x.device.type != "cpu" or x.dtype not in _DTYPES:
        return None
    if x.shape[0] * x.shape[1] < native.LEAST_TOKENS and ORDER.now != PANELS:
        return None
    if torch.is_grad_enabled() or stack.training or tap.recording() or not is_readable(x) or any(_GLOBAL_HOOKS):
        return None
    if layout.segments is not None or not layout.sequential or layout.padding == "mixed":
        return None
    if cache is not None and ((x.shape[1] == 1 and ORDER.now != PANELS) or layout.padding == "right"):
        return None
    if not native.ready(x.dtype):
        return None
    about = description_of(stack)
    if not isinstance(about.encoding, FusedEncoding):
        about.encoding = FusedEncoding(stack, about)
    return about.encoding(x, layout, runs, count, cache)


def encodes_in_panels(stack: LayerStack, dtype: torch.dtype) -> bool:
    """Whether the kernels run a stack over whole sequences on this CPU. In the order `PANELS` a sequence then gets the same
    numbers, to the bit, in any batch."""
    if dtype not in _DTYPES or not native.ready(dtype):
        return False
    about = description_of(stack)
    return FusedEncoding(stack, about).fits


def reads_in_panels(stack: LayerStack, dtype: torch.dtype) -> bool:
    """Whether the kernels read a prompt piece by piece. In the order `PANELS` its tokens then get the same numbers, to the
    bit, wherever the prompt is cut."""
    if dtype != torch.float32 or not native.ready(dtype):
        return False
    if any(isinstance(scheme, RotaryTurn) and scheme.scaling.by_length for scheme in stack.positions):
        return False
    encoding = FusedEncoding(stack, description_of(stack))
    return encoding.fits and all(made.causal for made in encoding.layers if made.has[OWN])


class FusedEncoding:
    """The layers of a stack, described for the kernels with a batch of whole sequences."""

    def __init__(self, stack: LayerStack, about: Description) -> None:
        self.about, self.fits = about, False
        self.lock = Lock()  # a batch at a time is described
        if not about.fits:
            return
        self.layers = about.layers()
        self.half = any(made.qkv.kind != FULL for made in self.layers)
        for block, made in zip(stack.layers, self.layers, strict=True):
            pattern = block.attention.pattern if made.has[OWN] else None
            if not _serves(made) or type(pattern) not in (Full, Causal, NoneType):
                return
            made.causal = type(pattern) is Causal
        self.fits = True

    def __call__(
        self, x: Float[Tensor, "B T M"], layout: Layout, runs: Sequence[Pass], count: int, cache: Cache | None
    ) -> Float[Tensor, "B T M"] | None:
        if not self.fits or self.about.is_watched():
            return None
        if any(run.attend is not attend or run.extras is not None or run.split is not None for run in runs):
            return None
        if not self.lock.acquire(blocking=False):
            return None
        try:
            return self._encoded(x, layout, runs, count, cache)
        finally:
            self.lock.release()

    def _encoded(
        self, x: Float[Tensor, "B T M"], layout: Layout, runs: Sequence[Pass], count: int, cache: Cache | None
    ) -> Float[Tensor, "B T M"] | None:
        packed, before = _Packed(x.contiguous(), layout), 0 if cache is None else cache.length - x.shape[1]
        alive: list[Tensor] = []
        schemes = self.about.position_of
        for i in sorted(set(schemes)):
            layers = [made for made, own in zip(self.layers, schemes, strict=True) if own == i]
            if not _place(layers, runs[schemes.index(i)], packed, before, alive):
                return None
        continues = ORDER.now == PANELS and len(x) == 1 and x.dtype == torch.float32 and layout.start == before
        if not self._remember(x, layout.padding != "none", cache, count, continues):
            return None
        if packed.rows.numel():
            about = self.layers, count, self.about.known.scratch, self.about.norm
            native.run(packed.rows, *about, packed.starts, packed.offsets, self.half)
        return packed.unpacked().to(x.dtype)

    def _remember(
        self, x: Float[Tensor, "B T M"], padded: bool, cache: Cache | None, count: int, continues: bool
    ) -> bool:
        """Describe where keys and values are kept, if they are; False if the kernels can't do it.

        continues: whether earlier tokens may be in the cache.
        """
        if cache is not None:
            states = [cache.layers[i] for i in range(count) if self.layers[i].has[OWN]]
            if not all(type(state) is KeyValueState and _takes(state, continues) for state in states):
                return False
        for i, made in enumerate(self.layers[:count]):
            made.k = made.v = None
            if cache is None or not made.has[OWN]:
                continue
            own, state = made.own, cache.layers[i]
            assert isinstance(state, KeyValueState)
            shapes = [(len(x), own.kv_heads, width) for width in (own.width, own.values)]
            held = None if state.is_empty else state.buffers(x.shape[1])
            k, v = state.first_buffers(shapes[0], shapes[1], x.dtype, padded) if held is None else held
            made.k, made.v, own.half_keys = k.data_ptr(), v.data_ptr(), k.dtype == torch.bfloat16
            made.slot = 0 if held is None else state.slot_table.step.before
            own.k, own.v = (Strides(t.stride(0), t.stride(2), t.stride(1)) for t in (k, v))  # of (B, K, slots, D)
        return True


def _takes(state: KeyValueState, continues: bool) -> bool:
    """Whether the kernels can write to a layer's state: one without tokens, or of all tokens so far."""
    return state.is_empty or (continues and state.slot_table.size is None)


class _Packed:
    """The tokens of a batch in fp32, one sequence after another without padding."""

    def __init__(self, x: Float[Tensor, "B T M"], layout: Layout) -> None:
        self.shape, self.layout = x.shape, layout
        batch, width = x.shape[:2]
        rows = x.reshape(-1, x.shape[2])
        self.index = None if layout.padding == "none" else layout.valid.expand(batch, width).flatten().nonzero()[:, 0]
        self.lengths = [width] * batch if self.index is None else layout.valid.expand(batch, width).sum(1).tolist()
        self.starts = [0, *accumulate(self.lengths)]
        self.offsets = [width - length if layout.padding == "left" else 0 for length in self.lengths]
        self.rows = rows.to(torch.float32, copy=True) if self.index is None else rows[self.index].float()

    def unpacked(self) -> Float[Tensor, "B T M"]:
        if self.index is None:
            return self.rows.view(self.shape)
        out = self.rows.new_zeros(self.shape[0] * self.shape[1], self.shape[2])
        return out.index_copy_(0, self.index, self.rows).view(self.shape)

    def table(self, x: Tensor) -> Tensor | None:
        """Numbers of each token (B or 1, T, 1, W), contiguous; None if they aren't fp32."""
        return x.contiguous() if x.dtype == torch.float32 else None


def _serves(made: LayerStruct) -> bool:
    """Whether all products of a layer are made from panels, and it has neither cross-attention nor experts."""
    products = [
        *((made.qkv, made.out) if made.has[OWN] else ()),
        *((made.up, made.down) if made.has[FEED_FORWARD] else ()),
    ]
    return (
        not made.has[CROSS]
        and not made.mixture
        and all(is_by_panels(product, native.LEAST_TOKENS) for product in products)
    )


def _place(layers: Sequence[LayerStruct], run: Pass, packed: _Packed, before: int, alive: list[Tensor]) -> bool:
    """Describe the rotations and the bias of a batch, whose sequences continue `before` tokens; False if the kernels can't
    do it."""
    cos = sin = bias = None
    if run.tables is not None:
        cos, sin = map(packed.table, run.tables)
        if cos is None or sin is None:
            return False
        assert isinstance(run.position, RotaryTurn)
        for made in layers:
            made.turned, made.interleaved = run.position.width, run.position.interleaved
            made.table_step = cos.stride(0) if len(cos) > 1 else 0
    if run.bias is not None:
        longest = max(packed.lengths)
        if longest > _LONGEST_BIAS or packed.layout.start is None:
            return False
        start = packed.layout.start
        queries, keys = Layout.full(longest, start), Layout.full(before + longest, start - before)
        bias = run.bias(queries.queries(), keys.keys()).float()
    alive += [x for x in (cos, sin, bias) if x is not None]
    for made in layers:
        made.cos, made.sin = (None if x is None else x.data_ptr() for x in (cos, sin))
        scores = (1, made.own.heads, *((0, 0) if bias is None else bias.shape[2:]))
        made.own.bias, made.own.bias_steps = placed(bias, scores)
    return True
