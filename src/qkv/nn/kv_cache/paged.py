"""Paged KV cache (PagedAttention, Kwon et al. 2023): rows share the pages of a common prefix, with copy on write."""

from __future__ import annotations

import weakref
from typing import Any, Self

import torch
from torch import Tensor

from ...core.layout import Layout
from .slot_table import SlotTable
from .slots import SlotState, put


class PageAllocator:
    """Free pages of `size` tokens, and reference counts of the others. At most `most` pages; shared by forks of a cache."""

    def __init__(self, size: int, most: int | None) -> None:
        self.size, self.most = size, most
        self.references: list[int] = []  # rows that use each page
        self._free: list[int] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    def left(self) -> int | None:
        """How many pages are left; None if unlimited."""
        return None if self.most is None else self.most - len(self.references) + len(self._free)

    def allocate(self) -> int:
        """A page with one reference."""
        if self._free:
            page = self._free.pop()
        else:
            page = len(self.references)
            self.references.append(0)
        self.references[page] = 1
        return page

    def retain(self, table: list[list[int]]) -> None:
        """Add a reference to each page of each row of a table."""
        for row in table:
            for page in row:
                self.references[page] += 1

    def release(self, table: list[list[int]]) -> None:
        for row in table:
            for page in row:
                self.references[page] -= 1
                if self.references[page] == 0:
                    self._free.append(page)


class BlockTable(SlotTable):
    """Row b's tokens are in pages `rows[b]`, in order, padding included."""

    def __init__(self, size: int, most: int | None) -> None:
        super().__init__()
        self._adopt(PageAllocator(size, most), [])

    def _adopt(self, pages: PageAllocator, rows: list[list[int]]) -> None:
        self.pages, self.rows = pages, rows
        self.copies: list[tuple[int, int]] = []  # pages to copy before this step writes: from, to
        weakref.finalize(self, pages.release, rows)  # a deleted cache frees its pages

    def __deepcopy__(self, memo: dict[int, Any]) -> BlockTable:
        twin = BlockTable.__new__(BlockTable)
        twin.__dict__.update(self.__dict__)
        self.pages.retain(self.rows)
        twin._adopt(self.pages, [list(row) for row in self.rows])
        return twin

    def check_admit(self, layout: Layout) -> None:
        """Raise ValueError if a step needs more pages than are left, including copies of shared ones."""
        left, size, rows = self.pages.left, self.pages.size, max(len(self.rows), layout.shape[0])
        need = rows * (-(-(self.length + layout.shape[1]) // size) - -(-self.length // size))
        need += len(self._rows_to_copy())
        if left is not None and need > left:
            raise ValueError(
                f"{self.length + layout.shape[1]} tokens in {rows} rows need {need} more pages of {size}, and {left} of "
                f"{self.pages.most} are left; give the cache more pages, or crop or delete caches that use them"
            )

    def _rows_to_copy(self) -> list[int]:
        """The rows that need a copy of their last page, because it is partly filled and shared; one of its rows keeps it."""
        if self.length % self.pages.size == 0:
            return []
        references = self.pages.references
        left: dict[int, int] = {}
        rows = []
        for row, mine in enumerate(self.rows):
            page = mine[-1]
            if left.setdefault(page, references[page]) > 1:
                left[page] -= 1
                rows.append(row)
        return rows

    def open(self, rows: int) -> None:
        self.rows.extend([] for _ in range(rows - len(self.rows)))

    def admit(self, layout: Layout) -> None:
        self.copies = []
        for row in self._rows_to_copy():
            mine = self.rows[row]
            old, mine[-1] = mine[-1], self.pages.allocate()
            self.pages.references[old] -= 1
            self.copies.append((old, mine[-1]))
        super().admit(layout)
        need = -(-self.length // self.pages.size)
        for mine in self.rows:
            mine.extend(self.pages.allocate() for _ in range(need - len(mine)))

    def slots(self, start: int, stop: int, device: torch.device) -> Tensor:
        """(B, stop − start) slots in the pool (page · size + offset) of tokens start … stop − 1 of each row."""
        size = self.pages.size
        table = torch.tensor([row[start // size : -(-stop // size)] for row in self.rows], device=device)
        every = table[..., None] * size + torch.arange(size, device=device)
        return every.flatten(1)[:, start % size : start % size + stop - start]

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        table = [list(self.rows[row]) for row in rows.tolist()]
        self.pages.retain(table)
        self.pages.release(self.rows)
        self.rows[:] = table

    def rewind(self, n: int) -> None:
        super().rewind(n)
        need = -(-self.length // self.pages.size)
        for mine in self.rows:
            self.pages.release([mine[need:]])
            del mine[need:]

    def pages_in_use(self) -> list[int]:
        """The pages of this cache, each once."""
        return sorted({page for row in self.rows for page in row})

    def tensors(self) -> dict[str, Tensor]:
        number = {page: i for i, page in enumerate(self.pages_in_use())}
        return {"table": torch.tensor([[number[page] for page in row] for row in self.rows], dtype=torch.int64)}

    def restore(self, length: int, kept: Layout | None, tensors: dict[str, Tensor]) -> None:
        super().restore(length, kept, tensors)
        table: list[list[int]] = tensors["table"].tolist()
        pages = sorted({page for row in table for page in row})
        if self.pages.left is not None and len(pages) > self.pages.left:
            raise ValueError(
                f"the file holds {len(pages)} pages, and {self.pages.left} are left; give the cache more pages"
            )
        own = {page: self.pages.allocate() for page in pages}
        mine = [[own[page] for page in row] for row in table]
        self.pages.retain(mine)
        self.pages.release([list(own.values())])  # the references of `allocate`, before there were rows
        self.rows[:] = mine


class PagePool:
    """The pages of one layer: keys and values (1, K, slots, D). Forks of a cache share it."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class PagedState(SlotState[BlockTable]):
    """Keys and values in the pages of a `BlockTable`."""

    def __init__(self, slot_table: BlockTable) -> None:
        super().__init__(slot_table)
        self.pool = PagePool()

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
        """Grow the pool, by doubling, to hold all allocated pages."""
        slots = len(self.slot_table.pages.references) * self.slot_table.pages.size
        have = self.pool.tensors[0].shape[2] if self.pool.tensors else 0
        if have < slots:
            old: list[Tensor | None] = [*self.pool.tensors] or [None, None]
            empty = (x.new_zeros(1, x.shape[1], slots - have, x.shape[3]) for x in new)
            self.pool.tensors = [put(t, more, have) for t, more in zip(old, empty, strict=True)]

    def reorder(self, rows: Tensor) -> None:
        """Nothing to do: the block table names the pages."""

    def _pages(self) -> list[Tensor]:
        """The pages of this cache, (1, K, pages · size, D)."""
        if not self.pool.tensors:
            return []
        size = self.slot_table.pages.size
        pages = torch.tensor(self.slot_table.pages_in_use(), device=self.pool.tensors[0].device, dtype=torch.int64)
        slots = (pages[:, None] * size + torch.arange(size, device=pages.device)).flatten()
        return [t.index_select(2, slots) for t in self.pool.tensors]

    def tensors(self) -> dict[str, Tensor]:
        return dict(zip("kv", self._pages(), strict=False))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        if not tensors:
            return
        size, pages = self.slot_table.pages.size, self.slot_table.pages_in_use()
        self._make_room((tensors["k"], tensors["v"]))
        for t, x in zip(self.pool.tensors, (tensors["k"], tensors["v"]), strict=True):
            for i, page in enumerate(pages):
                t[:, :, page * size : (page + 1) * size] = x[:, :, i * size : (i + 1) * size]

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of the pages in use, each counted once even if several rows share it."""
        slots = len(self.slot_table.pages_in_use()) * self.slot_table.pages.size
        return {"pages": sum(t.shape[1] * slots * t.shape[3] * t.element_size() for t in self.pool.tensors)}
