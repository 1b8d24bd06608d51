"""Proposals by a draft model: a smaller model with the same vocabulary, and its own cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..model_interface import RewindableCache
from ..sampling import draw
from ..speculation import Speculation
from .feed import Feed, feed
from .proposals import Proposals
from .rows import Continuation, Processed
from .verification import Randomness, numbers


class DraftProposer:
    """Lets the draft model continue every row: greedily, or with `random` by sampling with the same processors.

    `cache` holds the prompts. Between proposals it lacks the newest tokens of a row, which are read first.
    """

    def __init__(
        self, kind: Speculation, model: Feed, cache: RewindableCache, processed: Processed, random: Randomness | None
    ) -> None:
        self.kind, self.model, self.cache, self.processed, self.random = kind, model, cache, processed, random
        self.rows: Sequence[Continuation] = ()
        self.read: dict[int, int] = {}  # how many tokens of each row the cache holds, by the row's index
        self.kept: list[int] = []  # how many proposed tokens of each row the cache holds
        self.columns = 0  # columns of the cache that these take

    def propose(self, rows: Sequence[Continuation], most: Sequence[int]) -> Proposals:
        most = [self._room(row, n) for row, n in zip(rows, most, strict=True)]
        self.rows, self.columns, self.kept = rows, 0, [0] * len(rows)
        if not any(most):
            return Proposals([[] for _ in rows])
        unread = [row.tail(self._read(row)) if n else [] for row, n in zip(rows, most, strict=True)]
        logits = feed(self.model, self.cache, unread, "left")[:, -1:]
        for row, tokens in zip(rows, unread, strict=True):
            self.read[row.index] = self._read(row) + len(tokens)
        return self._continue(rows, most, logits)

    def _room(self, row: Continuation, most: int) -> int:
        """At most as many tokens as the draft model's context has places for."""
        most = min(most, self.kind.num_speculative_tokens)
        context = self.model.max_positions
        return max(most if context is None else min(most, context - len(row) + 1), 0)

    def _read(self, row: Continuation) -> int:
        return self.read.get(row.index, len(row.prompt))

    def _continue(self, rows: Sequence[Continuation], most: list[int], logits: Tensor) -> Proposals:
        """Choose most[b] tokens for each row, beginning with the (B, 1, V) logits of the first."""
        proposed: list[list[int]] = [[] for _ in rows]
        distributions = []
        for t in range(max(most)):
            allowed = self.processed(rows, proposed, logits.float(), first=t)[:, 0]
            if self.random is None:
                tokens = allowed.max(-1).indices
            else:
                distributions.append(allowed.to(torch.float64).softmax(-1))
                tokens = draw(allowed, numbers(self.random.drafts, rows, t, 1))
            stuck = (allowed.amax(-1) == -torch.inf).tolist()
            for place, (token, none) in enumerate(zip(tokens.tolist(), stuck, strict=True)):
                if none:
                    most[place] = min(most[place], t)
                if t < most[place]:
                    proposed[place].append(token)
            following = [tokens[-1:] if t + 1 < n else [] for tokens, n in zip(proposed, most, strict=True)]
            if not any(following):
                break
            logits = feed(self.model, self.cache, following)
            self.columns += 1
            self.kept = [kept + len(tokens) for kept, tokens in zip(self.kept, following, strict=True)]
        longest = max(map(len, proposed))
        q = torch.stack(distributions, 1)[:, :longest] if distributions else None
        return Proposals(proposed, q)

    def checked(self, accepted: Sequence[int], going: Sequence[int]) -> None:
        kept = [min(pair) for pair in zip(accepted, self.kept, strict=True)] if self.kept else [0] * len(accepted)
        for row, count in zip(self.rows, kept, strict=False):
            self.read[row.index] = self._read(row) + count
        if len(going) < len(accepted):
            self.cache.reorder(torch.tensor(going, device=self.model.device))
        self.cache.rewind_rows([self.columns - kept[place] for place in going])
        self.columns, self.kept, self.rows = 0, [], ()
