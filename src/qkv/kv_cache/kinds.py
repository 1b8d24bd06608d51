"""How keys and values are kept while a model decodes, as values: whole, in fewer bits, sinks and a window, or in pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from ..core.spec import Spec
from ..positions.base import PositionModule
from .full import KeyValueState, State
from .paged import BlockTable, PagedState
from .quantized import QuantizedState
from .sinks import SinkSlotTable, SinkState
from .slot_table import SlidingSlotTable, SlotTables

SHORT: Mapping[str, Mapping[str, Any]] = {"int8": {"kind": "quantized"}, "int4": {"kind": "quantized", "bits": 4}}


class CacheKind(Spec, role="cache"):
    """A form in which attention layers keep keys and values. In JSON also `int8` and `int4`, for quantized caches."""

    @model_validator(mode="wrap")
    @classmethod
    def _short(cls, value: Any, handler: Any) -> Any:
        return handler(SHORT.get(value, value) if isinstance(value, str) else value)

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> State:
        """An empty memory for one layer, of which no step needs more than the last `size` tokens (None: all)."""
        raise NotImplementedError

    def check(self, position: PositionModule, max_positions: int | None) -> None:
        """Raises ValueError where a model's positions or its context don't go with this kind."""

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        """Bytes that a layer holds of one row of so many tokens, by what they are."""
        return {"keys and values": tokens * heads * (d_key + d_value) * itemsize}

    def kept(self, tokens: int, window: int) -> int:
        """How many of so many tokens, fed one by one, a layer with a window keeps."""
        return tokens

    @property
    def endless(self) -> bool:
        """Whether text may go on past the model's context."""
        return False


class FullCache(CacheKind, kind="full"):
    """Keys and values as they are: of all tokens, or in a ring of as many as a layer's window sees."""

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> State:
        return KeyValueState(slot_tables[size], capacity)

    def kept(self, tokens: int, window: int) -> int:
        return min(tokens, window)


class QuantizedCache(CacheKind, kind="quantized"):
    """Keys and values in `bits` (KIVI, Liu et al. 2024): x ≈ scale · code + base, asymmetric, from least to greatest.

    Keys have a scale and a base for each channel of a `group` of tokens, as keys differ most by channel; values have them
    for each token and head. At least the newest `residual` tokens, and fewer than residual + group, stay as they are. Scales
    and bases are bf16, so each token and head has 4 D/group + 4 bytes of them beside (D + E) · bits/8 of codes.
    """

    bits: Literal[4, 8] = 8
    group: int = Field(default=128, gt=0)
    residual: int = Field(default=128, ge=0)

    @model_validator(mode="after")
    def _halves(self) -> QuantizedCache:
        if self.bits == 4 and self.group % 2:
            raise ValueError(f"4 bits put two tokens of a group into a byte, so a group of {self.group} has to be even")
        return self

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> State:
        if size is None:
            return QuantizedState(slot_tables[None], self.bits, self.group, self.residual)
        slot_table = slot_tables.of(SlidingSlotTable, self._least(size), self.group)
        return QuantizedState(slot_table, self.bits, self.group, self.residual)

    def _least(self, window: int) -> int:
        """The tokens that a window's layer keeps at least: whole groups are let go, and the tail is no group yet."""
        return max(window, self.group + self.residual)

    def kept(self, tokens: int, window: int) -> int:
        return tokens - max(0, tokens - 1 - self._least(window)) // self.group * self.group

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        coded = max(0, tokens - self.residual) // self.group * self.group
        return {
            "payload": coded * heads * (d_key + d_value) * self.bits // 8,
            "scales": heads * (coded // self.group * d_key + coded) * 4,
            "residual": (tokens - coded) * heads * (d_key + d_value) * itemsize,
        }


class SinkCache(CacheKind, kind="sinks"):
    """The first `sinks` tokens and the last `window` (StreamingLLM, Xiao et al. 2023), for text without end.

    Keys are kept unturned, and turned by their places in the cache, which never go past sinks + window − 1: a model that
    was trained on so many positions never sees another. All layers keep the same tokens.
    """

    sinks: int = Field(default=4, ge=0)
    window: int = Field(default=1024, gt=0)

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> State:
        return SinkState(slot_tables.of(SinkSlotTable, self.sinks, self.window))

    def check(self, position: PositionModule, max_positions: int | None) -> None:
        if type(position).embed is not PositionModule.embed:
            raise ValueError(
                "a cache of sinks and a window moves tokens to other places, and this model adds positions to its input, "
                "where they stay; take a model with rotary, ALiBi or T5 positions, or another cache"
            )
        if max_positions is not None and self.sinks + self.window > max_positions:
            raise ValueError(
                f"{self.sinks} sinks and a window of {self.window} are more than the model's context of {max_positions}; "
                f"give a window of at most {max_positions - self.sinks}"
            )

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        return super().bytes(min(tokens, self.sinks + self.window), heads, d_key, d_value, itemsize)

    @property
    def endless(self) -> bool:
        return True


class PagedCache(CacheKind, kind="paged"):
    """Keys and values in pages of `page` tokens (PagedAttention, Kwon et al. 2023), which rows share as far as they are one.

    A page is copied when one of its holders goes on in it, and free again when none is left. `pages` bounds those of a
    layer; by default they grow. Layers with a window keep all tokens too.
    """

    page: int = Field(default=16, gt=0)
    pages: int | None = Field(default=None, gt=0)

    def state(self, slot_tables: SlotTables, size: int | None, capacity: int | None = None) -> State:
        return PagedState(slot_tables.of(BlockTable, self.page, self.pages))

    def bytes(self, tokens: int, heads: int, d_key: int, d_value: int, itemsize: int) -> dict[str, int]:
        held = -(-tokens // self.page) * self.page
        return {"pages": held * heads * (d_key + d_value) * itemsize}


def named(how: CacheKind | Mapping[str, Any] | str | None) -> CacheKind:
    """The kind that is meant: a value, its JSON form, a name such as `int8`; `full` by default."""
    if isinstance(how, CacheKind):
        return how
    if how is None:
        return FullCache()
    return CacheKind.from_dict(SHORT.get(how, {"kind": how}) if isinstance(how, str) else how)
