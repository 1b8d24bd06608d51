"""Pages that rows share (PagedAttention, Kwon et al. 2023): a common beginning is held once, and copied where rows part."""

from __future__ import annotations

import weakref
from typing import Any, Self

import torch
from torch import Tensor

from ..core.layout import Layout
from .slot_table import SlotTable
from .slots import put


class Pages:
    """Which pages of `size` tokens are free, and how many rows hold each of the others. `most` bounds them all.

    Caches that are forks of one another share it.
    """

    def __init__(self, size: int, most: int | None) -> None:
        self.size, self.most = size, most
        self.holders: list[int] = []  # of each page
        self._free: list[int] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    def left(self) -> int | None:
        """How many pages there still are; None where nothing bounds them."""
        return None if self.most is None else self.most - len(self.holders) + len(self._free)

    def take(self) -> int:
        """A page for one holder."""
        if self._free:
            page = self._free.pop()
        else:
            page = len(self.holders)
            self.holders.append(0)
        self.holders[page] = 1
        return page

    def hold(self, table: list[list[int]]) -> None:
        """Every row of a table holds its pages once more."""
        for row in table:
            for page in row:
                self.holders[page] += 1

    def release(self, table: list[list[int]]) -> None:
        for row in table:
            for page in row:
                self.holders[page] -= 1
                if self.holders[page] == 0:
                    self._free.append(page)


class BlockTable(SlotTable):
    """The block table: row b's tokens are in pages `table[b]`, in order, padding included."""

    def __init__(self, size: int, most: int | None) -> None:
        super().__init__()
        self._adopt(Pages(size, most), [])

    def _adopt(self, pages: Pages, table: list[list[int]]) -> None:
        self.pages, self.table = pages, table
        self.copies: list[tuple[int, int]] = []  # pages that this step has to copy before it writes: from, to
        weakref.finalize(self, pages.release, table)  # a cache that is dropped gives its pages back

    def __deepcopy__(self, memo: dict[int, Any]) -> BlockTable:
        twin = BlockTable.__new__(BlockTable)
        twin.__dict__.update(self.__dict__)
        self.pages.hold(self.table)
        twin._adopt(self.pages, [list(row) for row in self.table])
        return twin

    def check_admit(self, layout: Layout) -> None:
        """Raises ValueError where the pages are fewer than a step needs, copies of shared ones included."""
        left, size, rows = self.pages.left, self.pages.size, max(len(self.table), layout.shape[0])
        need = rows * (-(-(self.length + layout.shape[1]) // size) - -(-self.length // size)) + len(self._parting())
        if left is not None and need > left:
            raise ValueError(
                f"{self.length + layout.shape[1]} tokens in {rows} rows need {need} more pages of {size}, and {left} of "
                f"{self.pages.most} are left; give the cache more pages, or crop or drop what holds them"
            )

    def _parting(self) -> list[int]:
        """The rows whose last page is begun and shared, so that they must have their own to go on: all but one of each."""
        if self.length % self.pages.size == 0:
            return []
        holders = self.pages.holders
        left: dict[int, int] = {}
        rows = []
        for row, mine in enumerate(self.table):
            page = mine[-1]
            if left.setdefault(page, holders[page]) > 1:
                left[page] -= 1
                rows.append(row)
        return rows

    def open(self, rows: int) -> None:
        self.table.extend([] for _ in range(rows - len(self.table)))

    def admit(self, layout: Layout) -> None:
        self.copies = []
        for row in self._parting():
            mine = self.table[row]
            old, mine[-1] = mine[-1], self.pages.take()
            self.pages.holders[old] -= 1
            self.copies.append((old, mine[-1]))
        super().admit(layout)
        need = -(-self.length // self.pages.size)
        for mine in self.table:
            mine.extend(self.pages.take() for _ in range(need - len(mine)))

    def slots(self, start: int, stop: int, device: torch.device) -> Tensor:
        """(B, stop − start) slots of the pool, page · size + place, in which tokens start … stop − 1 of each row are."""
        size = self.pages.size
        table = torch.tensor([row[start // size : -(-stop // size)] for row in self.table], device=device)
        every = table[..., None] * size + torch.arange(size, device=device)
        return every.flatten(1)[:, start % size : start % size + stop - start]

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        table = [list(self.table[row]) for row in rows.tolist()]
        self.pages.hold(table)
        self.pages.release(self.table)
        self.table[:] = table

    def rewind(self, n: int) -> None:
        super().rewind(n)
        need = -(-self.length // self.pages.size)
        for mine in self.table:
            self.pages.release([mine[need:]])
            del mine[need:]

    def held(self) -> list[int]:
        """The pages that this cache holds, each named once."""
        return sorted({page for row in self.table for page in row})

    def tensors(self) -> dict[str, Tensor]:
        number = {page: i for i, page in enumerate(self.held())}
        return {"table": torch.tensor([[number[page] for page in row] for row in self.table], dtype=torch.int64)}

    def restore(self, length: int, kept: Layout | None, tensors: dict[str, Tensor]) -> None:
        super().restore(length, kept, tensors)
        table: list[list[int]] = tensors["table"].tolist()
        pages = sorted({page for row in table for page in row})
        if self.pages.left is not None and len(pages) > self.pages.left:
            raise ValueError(
                f"the file holds {len(pages)} pages, and {self.pages.left} are left; give the cache more pages"
            )
        own = {page: self.pages.take() for page in pages}
        mine = [[own[page] for page in row] for row in table]
        self.pages.hold(mine)
        self.pages.release([list(own.values())])  # taken for one holder before there were rows
        self.table[:] = mine


class Pool:
    """The pages of one layer, one after the other: keys and values (1, K, slots, D). Forks of a cache share it."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class PagedState:
    """Keys and values in pages that a `BlockTable` keeps the table of."""

    unrotated = False

    def __init__(self, slot_table: BlockTable) -> None:
        self.slot_table, self.pool = slot_table, Pool()

    @property
    def layout(self) -> Layout:
        return self.slot_table.layout

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        slot_table, new = self.slot_table, (k.transpose(1, 2), v.transpose(1, 2))
        self._make_room(new)
        size, step = slot_table.pages.size, slot_table.step
        for old, own in slot_table.copies:
            for t in self.pool.tensors:
                t[:, :, own * size : (own + 1) * size] = t[:, :, old * size : (old + 1) * size]
        here = slot_table.slots(step.before, slot_table.length, k.device)
        for t, x in zip(self.pool.tensors, new, strict=True):
            t[0].index_copy_(1, here.flatten(), x.transpose(0, 1).flatten(1, 2))
        every = slot_table.slots(0, slot_table.length, k.device)
        keys, values = (
            t[0].index_select(1, every.flatten()).unflatten(1, every.shape).permute(1, 2, 0, 3)
            for t in self.pool.tensors
        )
        return keys, values

    def _make_room(self, new: tuple[Tensor, Tensor]) -> None:
        """As many slots as the pages that were ever taken, doubling."""
        slots = len(self.slot_table.pages.holders) * self.slot_table.pages.size
        have = self.pool.tensors[0].shape[2] if self.pool.tensors else 0
        if have < slots:
            old: list[Tensor | None] = [*self.pool.tensors] or [None, None]
            empty = (x.new_zeros(1, x.shape[1], slots - have, x.shape[3]) for x in new)
            self.pool.tensors = [put(t, more, have) for t, more in zip(old, empty, strict=True)]

    def reorder(self, rows: Tensor) -> None:
        """The slot table's table says it all."""

    def check_rewind(self, n: int) -> None:
        """The slot table refuses what can't be taken back."""

    def rewind(self, n: int) -> None:
        """The slot table gives pages back."""

    def _pages(self) -> list[Tensor]:
        """The pages that this cache holds, (1, K, pages · size, D)."""
        if not self.pool.tensors:
            return []
        size = self.slot_table.pages.size
        held = torch.tensor(self.slot_table.held(), device=self.pool.tensors[0].device, dtype=torch.int64)
        slots = (held[:, None] * size + torch.arange(size, device=held.device)).flatten()
        return [t.index_select(2, slots) for t in self.pool.tensors]

    def tensors(self) -> dict[str, Tensor]:
        return dict(zip("kv", self._pages(), strict=False))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        if not tensors:
            return
        size, held = self.slot_table.pages.size, self.slot_table.held()
        self._make_room((tensors["k"], tensors["v"]))
        for t, x in zip(self.pool.tensors, (tensors["k"], tensors["v"]), strict=True):
            for i, page in enumerate(held):
                t[:, :, page * size : (page + 1) * size] = x[:, :, i * size : (i + 1) * size]

    @property
    def parts(self) -> dict[str, int]:
        return {"pages": self.nbytes}

    @property
    def nbytes(self) -> int:
        """Bytes of the pages that are held, each counted once, whatever the number of rows that share it."""
        held = len(self.slot_table.held()) * self.slot_table.pages.size
        return sum(t.shape[1] * held * t.shape[3] * t.element_size() for t in self.pool.tensors)
