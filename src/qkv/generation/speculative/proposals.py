"""`Proposals`, the tokens that are checked in one pass, and `Proposer`, the interface of what proposes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from .rows import Continuation


@dataclass(frozen=True)
class Proposals:
    """Proposed tokens of every row; a row may have none.

    probabilities: (B, K, V) the distributions that they were drawn from; None for tokens that were not drawn.
    """

    tokens: list[list[int]]
    probabilities: Float[Tensor, "B K V"] | None = None

    @property
    def longest(self) -> int:
        """The most tokens of a row."""
        return max(map(len, self.tokens))


class Proposer(Protocol):
    """Proposes the next tokens of every active row."""

    def propose(self, rows: Sequence[Continuation], most: Sequence[int]) -> Proposals:
        """Propose at most most[b] tokens for rows[b]."""
        ...

    def checked(self, accepted: Sequence[int], going: Sequence[int]) -> None:
        """Learn how many proposed tokens of each row were accepted, and the places of the rows that continue."""
        ...
