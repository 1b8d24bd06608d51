"""Kinds of KV cache as specs: full, quantized, sinks with a window, paged, and eviction by attention (H2O, SnapKV)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from ...core.spec import Spec, brief
from ..patterns.basic import Causal, Pattern
from ..positions.base import PositionModule
from .eviction import EvictingSlotTable
from .full import AttentionState, KeyValueState
from .h2o import H2OState
from .paged import BlockTable, PagedState
from .quantized import QuantizedState
from .sinks import SinkSlotTable, SinkState
from .slot_table import SlidingSlotTable, SlotTables
from .snapkv import SnapKVState

SHORT: Mapping[str, Mapping[str, Any]] = {"int8": {"kind": "quantized"}, "int4": {"kind": "quantized", "bits": 4}}


class CacheKind(Spec, role="cache"):
    """A kind of KV cache. In JSON `int8` and `int4` are short for quantized caches."""

    @model_validator(mode="wrap")
    @classmethod
    def _short(cls, value: Any, handler: Any) -> Any:
        return handler(SHORT.get(value, value) if isinstance(value, str) else value)

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> AttentionState:
        """An empty state for one layer that needs only the last `size` tokens (None: all)."""
        raise NotImplementedError

    def check(self, position: PositionModule, max_positions: int | None) -> None:
        """Raise ValueError if a model's positions or context don't work with this kind."""

    def check_bias(self, position: PositionModule) -> None:
        """Raise ValueError if the position biases of a layer don't work with this kind."""

    def check_pattern(self, pattern: Pattern) -> None:
        """Raise ValueError if the pattern of a layer without a window does not work with this kind."""

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        """Bytes by kind that a layer needs for one row of `tokens` tokens."""
        return {"keys and values": tokens * heads * (d_key + d_value) * itemsize}

    def kept(self, tokens: int, window: int) -> int:
        """How many of `tokens` tokens, added one by one, a layer with this window keeps."""
        return tokens

    @property
    def endless(self) -> bool:
        """Whether text may be longer than the model's context."""
        return False

    @property
    def most(self) -> int | None:
        """Maximum number of tokens kept by a layer without a window, or None if all are kept."""
        return None

    @property
    def windowed(self) -> CacheKind:
        """The kind for layers with a window."""
        return self


class FullCache(CacheKind, kind="full"):
    """Keys and values in full precision, of all tokens or, in a ring buffer, of the tokens in a layer's window.

    With `ring` false, layers with a window keep all tokens too, so any number of the newest can be removed.
    """

    ring: bool = True

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> AttentionState:
        return KeyValueState(slot_tables[size if self.ring else None], capacity)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without a default `ring`, which files of caches from before it lack."""
        fields = super().to_dict()
        return {name: value for name, value in fields.items() if name != "ring" or not value}

    def kept(self, tokens: int, window: int) -> int:
        return min(tokens, window) if self.ring else tokens


class QuantizedCache(CacheKind, kind="quantized"):
    """Keys and values in `bits` (KIVI, Liu et al. 2024): x ≈ scale · code + zero point, asymmetric.

    Keys have a scale and a zero point for each channel of a `group` of tokens, as keys differ most by channel; values have
    them for each token and head. The newest tokens, at least `residual` and fewer than residual + group, stay in full
    precision. Scales and zero points are bf16: 4 D/group + 4 bytes a token and head, beside (D + E) · bits/8 of codes.
    """

    bits: Literal[4, 8] = 8
    group: int = Field(default=128, gt=0)
    residual: int = Field(default=128, ge=0)

    @model_validator(mode="after")
    def _halves(self) -> QuantizedCache:
        if self.bits == 4 and self.group % 2:
            raise ValueError(
                f"with 4 bits two tokens of a group share a byte, so group has to be even, not {self.group}"
            )
        return self

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> AttentionState:
        if size is None:
            return QuantizedState(slot_tables[None], self.bits, self.group, self.residual)
        slot_table = slot_tables.of(SlidingSlotTable, self._least(size), self.group)
        return QuantizedState(slot_table, self.bits, self.group, self.residual)

    def _least(self, window: int) -> int:
        """The fewest tokens that a layer with a window keeps, since only whole quantized groups are evicted."""
        return max(window, self.group + self.residual)

    def kept(self, tokens: int, window: int) -> int:
        return tokens - max(0, tokens - 1 - self._least(window)) // self.group * self.group

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        quantized = max(0, tokens - self.residual) // self.group * self.group
        return {
            "payload": quantized * heads * (d_key + d_value) * self.bits // 8,
            "scales": heads * (quantized // self.group * d_key + quantized) * 4,
            "residual": (tokens - quantized) * heads * (d_key + d_value) * itemsize,
        }


class SinkCache(CacheKind, kind="sinks"):
    """The first `sinks` tokens and the last `window` (StreamingLLM, Xiao et al. 2023), for text of any length.

    Keys are stored unrotated, and rotated by their index in the cache, which is at most sinks + window − 1: the model
    never sees a position that it was not trained on. All layers keep the same tokens.
    """

    sinks: int = Field(default=4, ge=0)
    window: int = Field(default=1024, gt=0)

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> AttentionState:
        return SinkState(slot_tables.of(SinkSlotTable, self.sinks, self.window))

    def check(self, position: PositionModule, max_positions: int | None) -> None:
        if type(position).embed is not PositionModule.embed:
            raise ValueError(
                "a cache of sinks and a window renumbers tokens, and this model adds positions to its input, where they "
                "can't be changed; use a model with rotary, ALiBi or T5 positions, or another cache"
            )
        if max_positions is not None and self.sinks + self.window > max_positions:
            raise ValueError(
                f"{self.sinks} sinks and a window of {self.window} exceed the model's context of {max_positions}; "
                f"give a window of at most {max_positions - self.sinks}"
            )

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        return super().bytes(min(tokens, self.most), heads, d_key, d_value, itemsize)

    @property
    def most(self) -> int:
        return self.sinks + self.window

    @property
    def endless(self) -> bool:
        return True


class PagedCache(CacheKind, kind="paged"):
    """Keys and values in pages of `page` tokens (PagedAttention, Kwon et al. 2023). Rows share the pages of a common prefix.

    A shared page is copied when one of its rows writes to it, and freed when no row uses it. `pages` limits their number in
    each layer; by default it grows. Layers with a window keep all tokens too.
    """

    page: int = Field(default=16, gt=0)
    pages: int | None = Field(default=None, gt=0)

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> AttentionState:
        return PagedState(slot_tables.of(BlockTable, self.page, self.pages))

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        slots = -(-tokens // self.page) * self.page
        return {"pages": slots * heads * (d_key + d_value) * itemsize}


class EvictingCache(CacheKind):
    """Base of kinds whose heads keep the tokens that receive most attention. Layers with a window have a ring buffer."""

    def check_bias(self, position: PositionModule) -> None:
        if type(position).bias is not PositionModule.bias:
            raise ValueError(
                f"the cache {self.kind!r} evicts tokens for each head separately, but position biases need all positions; "
                "use a model with rotary or learned positions, or another cache"
            )

    def check_pattern(self, pattern: Pattern) -> None:
        if pattern != Causal():
            raise ValueError(
                f"the cache {self.kind!r} evicts tokens for each head separately and needs layers with the pattern causal() "
                f"or a causal window, not {brief(pattern)}; use another cache"
            )

    @property
    def windowed(self) -> CacheKind:
        return FullCache()


class H2OCache(EvictingCache, kind="h2o"):
    """The last `recent` tokens, and the `heavy` others that received most attention so far (H2O, Zhang et al. 2023).

    Each key-value head keeps its own. Steps of up to 256 tokens use their attention weights for the output too; longer ones
    compute them a second time, to add them up.
    """

    heavy: int = Field(default=512, ge=0)
    recent: int = Field(default=512, gt=0)

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> AttentionState:
        return H2OState(slot_tables.of(EvictingSlotTable, self.heavy + self.recent, False), self.recent)

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        tokens = min(tokens, self.most)
        return {**super().bytes(tokens, heads, d_key, d_value, itemsize), H2OState.RECEIVED: tokens * heads * 4}

    @property
    def most(self) -> int:
        return self.heavy + self.recent


class SnapKVCache(EvictingCache, kind="snapkv"):
    """A prompt compressed to `tokens`: its last `window`, and those to which these attend most (SnapKV, Li et al. 2024).

    Each key-value head keeps its own. Attention is max-pooled over `kernel` neighbors, so neighbors stay together.
    Generated tokens are all kept until the next prompt of the conversation.
    """

    tokens: int = Field(default=1024, gt=0)
    window: int = Field(default=32, gt=0)
    kernel: int = Field(default=7, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> SnapKVCache:
        if self.window > self.tokens or self.kernel % 2 == 0:
            raise ValueError(
                f"window={self.window} must be at most tokens={self.tokens}, and kernel={self.kernel} must be odd"
            )
        return self

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> AttentionState:
        return SnapKVState(slot_tables.of(EvictingSlotTable, self.tokens, True), self.window, self.kernel)

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        """Bytes of a prompt of `tokens` tokens."""
        return super().bytes(min(tokens, self.most), heads, d_key, d_value, itemsize)

    @property
    def most(self) -> int:
        return self.tokens


def named(how: CacheKind | Mapping[str, Any] | str | None) -> CacheKind:
    """A cache kind from a spec, its JSON form or a name such as `int8`; `full` by default."""
    if isinstance(how, CacheKind):
        return how
    if how is None:
        return FullCache()
    return CacheKind.from_dict(SHORT.get(how, {"kind": how}) if isinstance(how, str) else how)
