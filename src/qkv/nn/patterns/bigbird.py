"""BigBird's attention pattern (Zaheer et al. 2020): neighboring blocks, the first and the last block, and random blocks.

Random blocks are drawn exactly as `transformers` draws them, so its checkpoints work here. The layer is
`attention.bigbird`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from ...core.graphs import constant, operator, untraced
from ...core.layout import Layout, View
from .algebra import Full, Pattern
from .intervals import BlockMask, Interval

_OF_THE_PAPER = (1024, 3072, 4096)  # lengths for which `transformers` draws as the paper's code
_REACH = 1024  # tokens from which that code draws


class BigBird(Pattern, kind="bigbird"):
    """Blocks of `size` tokens: the first and the last see all and are seen by all; each other block sees itself, the one
    before, the one after, and `random` more (Zaheer et al. 2020, §2, with internal global tokens).

    With a `seed` random blocks are drawn for each head. Without one each random block is the first block, which all see
    anyway, as `transformers` does in evaluation. A block may thus occur several times; `log_times` counts that.
    Rows of up to (5 + 2 · random) · size tokens have full attention.

    The last block depends on the width of a batch, not on positions: `over(width)` is the pattern for a width, with its
    number of `blocks`. Self-attention in `attend`, `mask`, `pairs` and `picture` call it. Decoding step by step is
    refused, because rows have no width yet. `longest` is the length of the longest row to come, on which draws for the
    lengths of the paper's models depend.
    """

    size: int = Field(default=64, gt=0)
    random: int = Field(default=3, ge=0)
    seed: int | None = Field(default=None, ge=0)
    longest: int | None = Field(default=None, gt=0)
    blocks: int | None = Field(default=None, gt=0)
    heads: int = Field(default=1, gt=0)

    @model_validator(mode="after")
    def _room_to_draw(self) -> BigBird:
        if self.blocks is not None and self.blocks <= 5 + 2 * self.random:
            raise ValueError(
                f"blocks={self.blocks} are too few to draw random={self.random} more from; leave them to over(width), which "
                "gives the full pattern for short rows"
            )
        return self

    def over(self, width: int | Layout, heads: int = 1) -> Pattern:
        """The pattern for rows of `width` tokens, padding included, and a number of heads."""
        if self.blocks is not None:
            return self
        return _over(self, width.shape[1] if isinstance(width, Layout) else width, heads)

    @property
    def counts(self) -> Tensor:
        """(heads, blocks, blocks) int64: how often block i of queries has block j of keys."""
        if not torch.compiler.is_compiling():
            return _table(self.text).clone()  # the first call of a custom operator would import `torch._dynamo`
        return _counts(self.text, self.heads, self._n_blocks)

    @property
    def repeats(self) -> bool:
        """Whether some block occurs more than once."""
        return _repeats(self)

    def log_times(self, q: View, k: View) -> Tensor:
        """ln of how often each key occurs, (B or 1, heads, T, S); 0 for keys that don't occur."""
        head = torch.arange(self.heads, device=q.position.device)[:, None, None]
        return self._times(q.position.unsqueeze(1), k.position.unsqueeze(1), head).clamp(min=1).float().log()

    def _unsized(self) -> bool:
        return self.blocks is None

    # -- as a pattern -------------------------------------------------------------------------------------------

    @property
    def head_period(self) -> int:
        return self.heads

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return self._times(q.position, k.position, 0 if head is None else head) > 0

    def block(self, q: Interval, k: Interval) -> BlockMask:
        if torch.compiler.is_compiling():  # the tables below are on the host
            return True, False
        seen, missed = _sums(self)
        rows, columns = (self._of(q.low), self._of(q.high)), (self._of(k.low), self._of(k.high))
        return _some(seen, rows, columns), ~_some(missed, rows, columns)

    @property
    def _n_blocks(self) -> int:
        if self.blocks is None:
            raise ValueError(f"the last block of {self} depends on the width of rows; call over(width)")
        return self.blocks

    def _of(self, position: Tensor | int) -> Tensor:
        """The block of a position; the nearest block for padding and positions beyond the end."""
        return (torch.as_tensor(position) // self.size).clamp(0, self._n_blocks - 1)

    def _times(self, q: Tensor, k: Tensor, head: Tensor | int) -> Tensor:
        return self.counts.to(q.device)[head % self.heads, self._of(q), self._of(k)]


@untraced
@lru_cache(maxsize=256)
def _over(pattern: BigBird, width: int, heads: int) -> Pattern:
    blocks = -(-width // pattern.size)
    if width <= (5 + 2 * pattern.random) * pattern.size:
        return Full()
    return pattern.replace(blocks=blocks, heads=1 if pattern.seed is None else heads)


@operator("bigbird_counts")
def _counts(pattern: str, heads: int, blocks: int) -> Tensor:
    """The table of a pattern (in JSON), as an operator that graphs can contain."""
    return _table(pattern).clone()


@_counts.register_fake
def _(pattern: str, heads: int, blocks: int) -> Tensor:
    return torch.empty(heads, blocks, blocks, dtype=torch.long)


@constant  # depends on the pattern alone, which is frozen
def _repeats(pattern: BigBird) -> bool:
    return int(_table(pattern.text).max()) > 1


@lru_cache(maxsize=256)
def _table(text: str) -> Tensor:
    pattern = BigBird.from_json(text)
    assert isinstance(pattern, BigBird)
    n = pattern._n_blocks
    row = torch.arange(n, device="cpu")
    once = (row[:, None] - row).abs() <= 1
    once[[0, -1]] = True
    once[:, [0, -1]] = True
    counts = once.long().repeat(pattern.heads, 1, 1)
    drawn = torch.from_numpy(_drawn(pattern))
    counts[:, 1:-1].scatter_add_(2, drawn, torch.ones_like(drawn))
    return counts


@lru_cache(maxsize=256)
def _sums(pattern: BigBird) -> tuple[Tensor, Tensor]:
    """Two-dimensional prefix sums of the pairs of blocks that some head sees, and of the pairs that some head does not
    see."""
    seen = _table(pattern.text) > 0
    return _summed(seen.any(0)), _summed(~seen.all(0))


def _summed(x: Tensor) -> Tensor:
    return F.pad(x.cumsum(0, dtype=torch.int32).cumsum(1, dtype=torch.int32), (1, 0, 1, 0))


def _some(sums: Tensor, rows: tuple[Tensor, Tensor], columns: tuple[Tensor, Tensor]) -> Tensor:
    """Whether the rectangle of rows and columns first … last contains any."""
    (top, bottom), (left, right) = rows, columns
    bottom, right = bottom + 1, right + 1
    return sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left] > 0


# -- drawing ------------------------------------------------------------------------------------------------------------

Drawn = NDArray[np.int64]  # block indices: (heads, blocks but the first and last, draws)


def _drawn(pattern: BigBird) -> Drawn:
    n, heads, count = pattern._n_blocks, pattern.heads, pattern.random
    if pattern.seed is None or count == 0:
        return np.zeros((heads, n - 2, count), np.int64)
    generator = np.random.RandomState(pattern.seed)
    if n * pattern.size not in _OF_THE_PAPER:
        return _among_the_first(generator, n, heads, count)
    most = max(n, (pattern.longest or 0) // pattern.size)
    return np.stack([_within_reach(generator, most, pattern.size, count)[: n - 2] for _ in range(heads)])


def _among_the_first(generator: np.random.RandomState, n: int, heads: int, count: int) -> Drawn:
    """Each block draws from the first 5 + 2 · count blocks, except blocks that it sees anyway and the last of them."""
    end = 5 + 2 * count
    drawn = np.empty((heads, n - 2, count), np.int64)
    for row in range(1, n - 1):
        barred = {0, end - 1, row - 1, row, row + 1, *({end - 2} if row == 1 else {1} if row == end - 2 else ())}
        for head in range(heads):
            drawn[head, row - 1] = [at for at in generator.permutation(end) if at not in barred][:count]
    return drawn


def _within_reach(generator: np.random.RandomState, n: int, size: int, count: int) -> Drawn:
    """Return the random blocks of one head. Each block draws from the first 1024 tokens' blocks, and may draw one that it
    already sees."""
    last = _REACH // size - 1 if 2 * size < _REACH else n - 1
    inner = np.arange(1, n - 1)
    drawn = np.empty((n - 2, count), np.int64)
    for row in range(1, n - 1):
        if row <= 2:
            others = inner[row + 1 : last]
        elif row >= n - 3 or row - 2 > last:
            others = inner[:last]
        elif row + 1 == last:
            others = inner[: row - 2]
        else:
            others = np.concatenate([inner[: row - 2], inner[row + 1 : last]])
        if len(others) < count:
            raise ValueError(
                f"block {row} can draw from {len(others)} blocks within {_REACH} tokens, fewer than "
                f"random={count}; take smaller blocks"
            )
        drawn[row - 1] = generator.permutation(others)[:count]
    return drawn
