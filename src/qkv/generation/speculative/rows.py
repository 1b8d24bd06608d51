"""The rows of a speculative search: their tokens, and the logits processors at several places of each row at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from ..logits_processors import Processor, apply
from ..prompts import Prompts
from ..result import Hypothesis


@dataclass(eq=False)
class Continuation:
    """A continuation in progress. `index` is prompt · num_samples + sample, `limit` the most new tokens.

    `reach` is how many tokens are worth proposing next: two more than were accepted if one was rejected, twice as many
    if all were accepted. None has no bound yet.
    """

    index: int
    prompt: tuple[int, ...]
    limit: int
    hypothesis: Hypothesis = field(default_factory=Hypothesis)
    reach: int | None = None

    def learn(self, proposed: int, accepted: int) -> None:
        """Set `reach` by how a proposal went."""
        if accepted < proposed:
            self.reach = accepted + 2
        elif proposed and self.reach is not None:
            self.reach = max(self.reach, 2 * proposed)

    @property
    def most(self) -> int:
        """At most so many tokens are proposed: the last new token is the model's own."""
        return self.left - 1 if self.reach is None else min(self.left - 1, self.reach)

    @property
    def new(self) -> list[int]:
        """The tokens generated so far."""
        return self.hypothesis.tokens

    def __len__(self) -> int:
        return len(self.prompt) + len(self.new)

    @property
    def left(self) -> int:
        """How many tokens may still be generated."""
        return self.limit - len(self.new)

    def tail(self, start: int) -> list[int]:
        """The tokens of prompt and continuation from index `start` on."""
        before = len(self.prompt)
        return [*self.prompt[start:], *self.new[max(start - before, 0) :]]


class Processed:
    """The processors of a search, for rows with different numbers of new tokens.

    Processors that read `ids` get what they get in a step of one token: the prompt, padded as in its batch, and the new
    tokens. The others are applied to all places together.
    """

    def __init__(self, processors: Sequence[Processor], prompts: Prompts, num_samples: int) -> None:
        readers = [i for i, process in enumerate(processors) if getattr(process, "reads_ids", True)]
        split = readers[-1] + 1 if readers else 0
        self.readers, self.others = list(processors[:split]), list(processors[split:])
        self.history = prompts.history().repeat_interleave(num_samples, 0) if readers else None

    def __bool__(self) -> bool:
        return bool(self.readers or self.others)

    def __call__(
        self,
        rows: Sequence[Continuation],
        proposed: Sequence[Sequence[int]],
        logits: Float[Tensor, "B T V"],
        first: int = 0,
    ) -> Float[Tensor, "B T V"]:
        """Process logits, where logits[b, t] are of the token after the row and the first `first` + t of `proposed[b]`."""
        if self.history is not None:
            logits = logits.clone()
            by_length: dict[int, list[int]] = {}
            for place, row in enumerate(rows):
                by_length.setdefault(len(row.new), []).append(place)
            for places in by_length.values():
                self._read(rows, proposed, logits, places, first)
        ids = torch.empty(0)  # which the other processors do not read
        return apply(self.others, ids, logits.flatten(0, 1)).view_as(logits)

    def _read(
        self,
        rows: Sequence[Continuation],
        proposed: Sequence[Sequence[int]],
        logits: Tensor,
        places: list[int],
        first: int,
    ) -> None:
        """Apply the processors that read ids to rows with equally many new tokens, in place."""
        assert self.history is not None
        count = first + logits.shape[1] - 1
        tokens = [[*rows[place].new, *proposed[place][:count]] for place in places]
        width = len(rows[places[0]].new) + count
        tokens = [row + [0] * (width - len(row)) for row in tokens]  # where a row has no proposal, nothing is used
        new = torch.tensor(tokens, dtype=torch.long, device=logits.device).view(len(places), width)
        ids = torch.cat([self.history[[rows[place].index for place in places]], new], 1)
        at = torch.tensor(places, device=logits.device)
        for t in range(logits.shape[1]):
            seen = ids[:, : ids.shape[1] - (logits.shape[1] - 1 - t)]
            logits[at, t] = apply(self.readers, seen, logits[at, t])
