"""`Cache`: the KV cache of a whole model, one state for each attention layer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from ...core.layout import Layout
from ...core.several import in_words, worded
from .full import CrossState, KeyValueState, LayerState, Serializable
from .slot_table import SlotTable, SlotTables, following

Make = Callable[[SlotTables, int | None], LayerState]  # from slot tables and the number of tokens to allocate, if known


class Cache:
    """A state for each attention layer, and what the layers share.

    `layers[i]` is the size of layer i's ring buffer (None: all tokens), or a function that returns its state. Layers of one
    size share a slot table. `about()` describes the model in JSON, and must equal what a file to load says; `device` is
    where loaded tensors go.
    """

    def __init__(
        self,
        batch_size: int,
        layers: Sequence[int | Make | None],
        cross: bool,
        max_positions: int | None = None,
        capacity: int | None = None,
        about: Callable[[], Any] = dict,
        device: torch.device | str | None = None,
    ) -> None:
        self.batch_size, self.max_positions = batch_size, max_positions
        self.about, self.device = about, device
        self.slot_tables = SlotTables()
        self.layers: list[LayerState] = [
            make(self.slot_tables, capacity) if callable(make) else KeyValueState(self.slot_tables[make], capacity)
            for make in layers
        ]
        if not self.slot_tables:
            self.slot_tables[None]  # at least one table is needed for the positions of rows
        for table in self.slot_tables.values():
            table.open(batch_size)
        self.cross = [CrossState() for _ in layers] if cross else []
        self.fused: Any = None  # what a model keeps about steps with this cache (`models.fused_step`)
        self.settled = False  # whether the model's weights and hooks stay as they are from step to step
        self.length = 0  # columns so far, including padding
        self._longest = 0  # tokens of the longest row, counted on the host
        self._next: Tensor | None = None  # (B, A) next positions of each row, where rows or axes differ

    def admit(self, layout: Layout | None, count: int, device: torch.device) -> Layout:
        """Add the next `count` tokens of each row to every slot table; by default they continue the row.

        Returns their layout: positions in the text, or in the cache for caches that renumber tokens.
        """
        if layout is None:
            layout = self._continued(count, device)
        one_axis = layout.positions.shape[-1] == 1
        uniform = layout.padding == "none" and layout.start == self.length and self._next is None and one_axis
        tables = list(self.slot_tables.values())
        for table in tables:
            table.check_admit(layout)
        places = tables[0].places(count)
        if places is None:
            self._check_context(layout, count)
        elif self.max_positions is not None and places > self.max_positions:
            raise self._too_long(places - 1)
        if not uniform:
            before = self.length if self._next is None else self._next
            after = following(layout)
            self._next = torch.where(after[:, :1] > 0, after, before).expand(self.batch_size, -1)
        for table in tables:
            table.admit(layout)
        self.length += count
        return tables[0].placed(layout)

    def _check_context(self, layout: Layout, count: int) -> None:
        """Raise ValueError past the model's context. The host counts the longest row so far; the device is read only if that
        count is too large."""
        if layout.start is not None and layout.padding == "none":
            self._longest = max(self._longest, layout.start + count)
        elif layout.lengths is not None:
            self._longest += max(layout.lengths, default=0)
        else:
            self._longest += count
        if self.max_positions is None or self._longest <= self.max_positions:
            return
        self._longest = int(layout.positions[..., 0].max()) + 1
        if self._longest > self.max_positions:
            raise self._too_long(self._longest - 1)

    def _too_long(self, position: int) -> ValueError:
        return ValueError(
            f"position {position} is past the model's context of {self.max_positions}; shorten the prompt or "
            "ask for fewer tokens"
        )

    def _continued(self, count: int, device: torch.device) -> Layout:
        if self._next is None:
            return Layout.full(count, start=self.length, device=device)
        positions = self._next[:, None] + torch.arange(count, device=device)[:, None]
        return Layout(positions, padding="none", sequential=True)

    def continued(
        self, lengths: Sequence[int], device: torch.device, side: Literal["left", "right"] = "right"
    ) -> Layout:
        """The layout of a step in which row b continues with lengths[b] tokens, padded on one side to the longest."""
        layout = self._continued(max(lengths), device)
        if min(lengths) == max(lengths):
            return layout
        padded = Layout.from_lengths(lengths, side=side, device=device)
        start = layout.positions[:, :1]
        return Layout(torch.where(padded.valid[..., None], padded.positions + start, -1))

    @contextmanager
    def settle(self) -> Iterator[None]:
        """Promise that the model's weights and hooks stay as they are, so a step need not check all of them."""
        before, self.settled = self.settled, True
        try:
            yield
        finally:
            self.settled = before

    def _states(self) -> list[LayerState]:
        return [*self.layers, *self.cross]

    def reorder(self, rows: Int[Tensor, " N"], cross: bool = True) -> None:
        """Row i becomes the old row `rows[i]`: to follow beams, to sample several outputs, to drop finished rows.

        `cross=False` leaves the encoder's keys unchanged, for rows that keep their source (beams of one sentence).
        """
        try:
            for state in self._states() if cross else self.layers:
                state.reorder(rows)
            for table in self.slot_tables.values():
                table.reorder(rows)
            self._next = None if self._next is None else self._next.index_select(0, rows)
            self.batch_size = len(rows)
        except (TypeError, AttributeError, RuntimeError) as error:
            raise in_words(error, Cache.reorder, self, rows, cross) from None

    @worded
    def fork(self, rows: Int[Tensor, " N"] | None = None) -> Cache:
        """A second cache that continues from these rows (all by default). Pages are shared; other kinds are copied."""
        twin = copy.deepcopy(self)
        if rows is not None:
            twin.reorder(rows)
        return twin

    def rewind(self, n: int) -> None:
        """Remove the last n tokens of every row. Raises ValueError if a window no longer has the tokens before them."""
        tables = list(self.slot_tables.values())
        both: list[SlotTable | LayerState] = [*tables, *self.layers]
        try:
            for each in both:
                each.check_rewind(n)
            for each in both:
                each.rewind(n)
            self.length -= n
        except (TypeError, AttributeError, RuntimeError) as error:
            raise in_words(error, Cache.rewind, self, n) from None
        self._longest = max(self._longest - n, 0)
        if self._next is not None:
            self._next = tables[0].next_positions(self.batch_size) if self.length else None

    def rewind_rows(self, counts: Sequence[int]) -> None:
        """Remove the last counts[b] tokens of row b. Their slots become padding if another row removes fewer.

        Raises ValueError as `rewind` and `check_rewind_rows` do.
        """
        least = min(counts)
        if least:
            self.rewind(least)
        if max(counts) == least:
            return
        tables = list(self.slot_tables.values())
        hidden = torch.tensor([n - least for n in counts], device=self.device)
        for table in tables:
            table.check_hide()
        for table in tables:
            table.hide(hidden)
        self._next = tables[0].next_positions(self.batch_size)

    def check_rewind_rows(self) -> None:
        """Raise ValueError, naming the layer, if tokens can't be removed from each row separately at any time."""
        for i, state in enumerate(self.layers):
            try:
                state.check_rewind(1)
            except ValueError as error:
                raise ValueError(f"layer {i}: {error}") from None
        for table in self.slot_tables.values():
            table.check_hide()

    @worded
    def crop(self, n: int) -> None:
        """Keep the first n tokens of every row, including padding on the left."""
        if not 0 <= n <= self.length:
            raise ValueError(
                f"can't crop to {n} tokens: the cache has {self.length}; give a number from 0 to {self.length}"
            )
        self.rewind(self.length - n)

    @worded
    def save(self, path: str | Path) -> None:
        """Write the cache to a safetensors file, which `load` reads into a new cache of the same model.

        Raises ValueError for states that can't be written to a file.
        """
        from . import io

        tensors: dict[str, Tensor] = {}
        for i, state in enumerate(self.layers):
            tensors |= io.prefixed(f"layers.{i}", _serializable(state, i).tensors())
        for i, cross in enumerate(self.cross):
            if cross.filled:
                tensors |= io.prefixed(f"cross.{i}", dict(zip("kv", cross.keys_values, strict=True)))
                tensors |= io.prefixed(f"cross.{i}.layout", io.layout_tensors(cross.layout))
        for i, table in enumerate(self.slot_tables.values()):  # "ledgers" in files
            tensors |= io.prefixed(f"ledgers.{i}", table.tensors())
            tensors |= io.prefixed(f"ledgers.{i}.kept", io.layout_tensors(table.kept))
        if self._next is not None:
            tensors["next"] = self._next
        facts = {
            "about": self.about(),
            "batch_size": self.batch_size,
            "length": self.length,
            "longest": self._longest,
            "ledgers": [
                {"length": table.length, "kept": io.layout_facts(table.kept)} for table in self.slot_tables.values()
            ],
            "cross": [io.layout_facts(cross.layout) if cross.filled else None for cross in self.cross],
        }
        io.write(path, facts, tensors)

    @worded
    def load(self, path: str | Path) -> None:
        """Fill this new cache from a file. Raises ValueError, and changes nothing, for another model or kind of cache."""
        from . import io

        facts, tensors = io.read(path, self.device)
        if facts["about"] != json.loads(json.dumps(self.about())):
            raise ValueError(
                f"{path} is a cache of {io.describe(facts['about'])}, and this one is of {io.describe(self.about())}"
            )
        if self.length:
            raise ValueError(f"the cache already has {self.length} tokens; load into a new one")
        for i, (table, known) in enumerate(zip(self.slot_tables.values(), facts["ledgers"], strict=True)):
            own = io.below(f"ledgers.{i}", tensors)
            table.restore(known["length"], io.layout_from(io.below("kept", own), known["kept"]), own)
        for i, state in enumerate(self.layers):
            _serializable(state, i).restore(io.below(f"layers.{i}", tensors))
        for i, (cross, known) in enumerate(zip(self.cross, facts["cross"], strict=True)):
            own = io.below(f"cross.{i}", tensors)
            layout = io.layout_from(io.below("layout", own), known)
            if layout is not None:
                cross.fill(own["k"], own["v"], layout)
        self.batch_size, self.length, self._longest = facts["batch_size"], facts["length"], facts["longest"]
        self._next = tensors.get("next")

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by kind: keys and values; payload, scales and residual; or pages."""
        sizes: dict[str, int] = {}
        for state in self._states():
            for name, size in getattr(state, "parts", {"other": state.nbytes}).items():
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(state.nbytes for state in self._states())


def _serializable(state: object, layer: int) -> Serializable:
    if not isinstance(state, Serializable):
        raise ValueError(
            f"layer {layer} has a {type(state).__name__}, which can't be written to a file; use another cache"
        )
    return state
