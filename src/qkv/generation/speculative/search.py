"""Greedy decoding and sampling with speculation: one pass of the model checks the tokens that a proposer gives."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .. import pace, trace
from ..model_interface import ParallelDecoder, RewindableCache
from ..result import Acceptance, Hypothesis
from ..stopping import SearchOptions
from .feed import feed
from .proposals import Proposals, Proposer
from .rows import Continuation, Processed
from .verification import Randomness, Verified, verify

Stream = Callable[[int, int], None]  # as in `greedy_search`


class SpeculativeSearch:
    """The rows that are not finished, with their cache.

    Between passes the cache holds all tokens of a row but the newest. A pass reads that token and the proposals after it;
    afterwards the tokens that were not accepted are removed from the cache, row by row.
    """

    def __init__(
        self,
        model: ParallelDecoder,
        cache: RewindableCache,
        rows: list[Continuation],
        proposer: Proposer,
        rules: SearchOptions,
        processed: Processed,
        random: Randomness | None,
    ) -> None:
        self.model, self.cache, self.proposer, self.rules = model, cache, proposer, rules
        self.processed, self.random = processed, random
        self.all_rows, self.active = rows, rows
        self.proposals = Proposals([[] for _ in rows])

    def run(self, logits: Tensor, stream: Stream | None) -> list[Hypothesis]:
        """Continue every row, from the (B, V) logits of its first new token."""
        logits = logits[:, None]
        while True:
            logits = logits.float()
            allowed = self.processed(self.active, self.proposals.tokens, logits)
            verified = verify(allowed, self.proposals, self.active, self.random)
            pace.chosen()
            if trace.recording() and self.active[0].index == 0:
                self._trace(logits[0], verified[0])
            results = zip(verified, self._log_probs(logits, verified), strict=True)
            going = [place for place, result in enumerate(results) if self._take(place, *result, stream)]
            if not going:
                return [row.hypothesis for row in self.all_rows]
            logits = self._advance(logits.shape[1], verified, going)

    def _trace(self, logits: Tensor, result: Verified) -> None:
        """Record how each token of the first row is chosen, up to its end."""
        row, history = self.active[0], self.processed.history
        before, new = [] if history is None else history[0].tolist(), list(row.new)
        for t, token in enumerate(result.tokens):
            ids = torch.tensor([[*before, *new]], dtype=torch.long, device=logits.device)
            trace.add_choice(logits[t : t + 1], ids, self.rules.processors, token)
            new.extend([] if token is None else [token])
            if token is None or self.rules.ending(new, row.limit) is not None:
                return

    def _log_probs(self, logits: Tensor, verified: list[Verified]) -> list[list[float]]:
        """log p of each row's tokens under the model itself; of unused places, of any token."""
        if not self.rules.log_probs:
            return [[0.0] * logits.shape[1] for _ in verified]
        tokens = [[token or 0 for token in result.tokens] for result in verified]
        padded = [row + [0] * (logits.shape[1] - len(row)) for row in tokens]
        chosen = logits.gather(-1, torch.tensor(padded, device=logits.device)[..., None]).squeeze(-1)
        values: list[list[float]] = (chosen - logits.logsumexp(-1)).tolist()
        return values

    def _take(self, place: int, result: Verified, log_probs: list[float], stream: Stream | None) -> bool:
        """Append a row's tokens up to its end. Returns whether it continues."""
        row, hypothesis = self.active[place], self.active[place].hypothesis
        hypothesis.acceptance += Acceptance(passes=1, proposed=len(self.proposals.tokens[place]))
        for t, (token, log_prob) in enumerate(zip(result.tokens, log_probs, strict=False)):
            if token is None:
                return False
            hypothesis.tokens.append(token)
            hypothesis.log_probs.append(log_prob)
            hypothesis.acceptance.accepted += t < result.accepted
            if stream is not None:
                stream(row.index, token)
            reason = self.rules.ending(hypothesis.tokens, row.limit)
            if reason is not None:
                hypothesis.reason = reason
                return False
        return True

    def _advance(self, columns: int, verified: list[Verified], going: list[int]) -> Tensor:
        """Remove what was not accepted from the cache, and read the newest tokens with new proposals: logits (B, T, V)."""
        for row, tokens, result in zip(self.active, self.proposals.tokens, verified, strict=True):
            row.learn(len(tokens), result.accepted)
        self.proposer.checked([result.accepted for result in verified], going)
        if len(going) < len(self.active):
            self.cache.reorder(torch.tensor(going, device=self.model.device))
            self.active = [self.active[place] for place in going]
        self.cache.rewind_rows([columns - verified[place].accepted - 1 for place in going])
        most = [row.most for row in self.active]
        self.proposals = self.proposer.propose(self.active, most)
        blocks = [[row.new[-1], *tokens] for row, tokens in zip(self.active, self.proposals.tokens, strict=True)]
        return feed(self.model, self.cache, blocks)
