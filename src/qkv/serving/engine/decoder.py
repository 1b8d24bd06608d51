"""A model that decodes for many requests: prompts are read in chunks, and rows are stepped together."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...generation.model_interface import settled
from ...generation.prompts import ROOM
from ...nn.kv_cache.cache import Cache
from ...nn.models.fused_step.rows import FusedRows, RowCache
from ...nn.models.heads.language_model import LanguageModelHead
from ...runs.inference.loaded import LoadedModel
from .continuation import ChosenToken, Continued, Work, described
from .crashes import Crashes
from .prefixes import Prefixes
from .statistics import Statistics

_log = logging.getLogger(__name__)
FAILED = "the server failed at this request; its log says why"
CHUNK = 256
"""Tokens of a prompt that are read at a time. Chunks begin at its multiples, so a prompt is always read in the same ones."""


class PromptReading:
    """A prompt that is being read: how far, and its cache."""

    def __init__(self, work: Work, cache: Cache, done: int) -> None:
        self.work, self.cache, self.done = work, cache, done

    @property
    def next(self) -> Sequence[int]:
        """The tokens of the next chunk."""
        return self.work.prompt[self.done : (self.done // CHUNK + 1) * CHUNK]


class DecodedRow:
    """A continuation that is being decoded, its cache, and the token to feed next."""

    def __init__(self, continuation: Continued, cache: Cache, token: int, is_fused: bool) -> None:
        self.continuation, self.token = continuation, token
        self.cache = RowCache(cache)
        self.is_fused = is_fused


class Decoder:
    """The rows of one model.

    By default a row's numbers don't depend on the other rows: prompts are read one at a time, and rows are stepped together
    only by `FusedRows` in order, else one by one. With `fast`, products are as fast as they can be.
    """

    def __init__(self, run: LoadedModel, statistics: Statistics, fast: bool = False, prefix_bytes: int = 0) -> None:
        model: Any = run.model
        self.run, self.statistics, self.model = run, statistics, model
        self.rows: list[DecodedRow] = []
        self.reading: list[PromptReading] = []
        self.prefixes = Prefixes(prefix_bytes, CHUNK)
        self.crashes = Crashes()
        self.is_leaving = False  # once it has finished its requests
        fused = FusedRows(model, in_order=not fast) if _has_our_head(model) else None
        self.fused = fused if fused is not None and fused.serves else None

    def begin(self, work: Work) -> None:
        """Take up a request."""
        model, room = self.model, len(work.prompt) + min(work.limit, ROOM)
        if work.source is not None:
            cache: Any = model.start(source=torch.tensor([list(work.source)]), capacity=room)
            self.reading.append(PromptReading(work, cache, 0))
            return
        kind = work.settings.cache
        found, done = (None, 0) if kind is not None or work.echo else self.prefixes.find(work.prompt)
        options = {} if kind is None else {"cache": kind}
        cache = model.start(1, capacity=room, **options) if found is None else found
        work.reused = done
        self.reading.append(PromptReading(work, cache, done))

    def read(self) -> int:
        """Read the next chunk of the oldest prompt; returns its number of tokens."""
        reading = self.reading[0]
        work, chunk = reading.work, reading.next
        with settled(reading.cache):
            if work.echo:
                logits = self.model.step(torch.tensor([chunk]), reading.cache, None, True)
                _keep(work, chunk, logits[0].float(), reading.done)
                logits = logits[:, -1]
            else:
                logits = self.model.step(torch.tensor([chunk]), reading.cache)
        reading.done += len(chunk)
        self.statistics.prompt_tokens += len(chunk)
        if work.source is None and work.settings.cache is None and reading.done % CHUNK == 0 and not work.echo:
            self.prefixes.keep(work.prompt[: reading.done], reading.cache)
        if reading.done == len(work.prompt):
            self._split(reading, logits)
            self.reading.remove(reading)
        return len(chunk)

    def _split(self, reading: PromptReading, logits: Tensor) -> None:
        """Choose the first tokens of all continuations of a prompt, which become rows."""
        self.statistics.first_token(time.perf_counter() - reading.work.arrived)
        begun = reading.work.begun()
        for i, continuation in enumerate(begun):
            token = _taken(continuation, logits)
            self.statistics.new_tokens += 1
            if token is not None:
                cache = reading.cache if i == len(begun) - 1 else reading.cache.fork()
                fused = self.fused is not None and self.fused.takes(cache)
                self.rows.append(DecodedRow(continuation, cache, token, fused))

    def step(self) -> int:
        """Take a step with every row; returns their number."""
        rows = self.rows
        if not rows:
            return 0
        logits = self._logits(rows)
        chosen = _chosen_together(rows, logits)
        going = []
        for i, row in enumerate(rows):
            token = _taken(row.continuation, chosen[i] if i in chosen else logits[i : i + 1])
            if token is not None:
                row.token = token
                going.append(row)
        self.rows = going
        self.statistics.new_tokens += len(rows)
        return len(rows)

    def _logits(self, rows: list[DecodedRow]) -> Tensor:
        """The logits of every row after its next token, (B, V)."""
        fused = self.fused if self.fused is not None and self.fused.ready() else None
        together = [i for i, row in enumerate(rows) if fused is not None and row.is_fused]
        found: dict[int, Tensor] = {}
        if fused is not None and together:
            some = fused.step(torch.tensor([rows[i].token for i in together]), [rows[i].cache for i in together])
            if len(together) == len(rows):
                return some
            found = dict(zip(together, some, strict=True))
        for i in set(range(len(rows))) - set(together):
            cache = rows[i].cache.cache
            with settled(cache):
                found[i] = self.model.step(torch.tensor([[rows[i].token]]), cache)[0]
        return torch.stack([found[i] for i in range(len(rows))])

    def drop_cancelled(self) -> None:
        """Free the places of requests that nobody waits for any more."""
        works = [*(row.continuation.work for row in self.rows), *(reading.work for reading in self.reading)]
        for work in works:
            if work.cancelled:
                self.drop(work)
                work.give_up("cancelled")

    def drop(self, work: Work) -> None:
        """Forget a request."""
        self.rows = [row for row in self.rows if row.continuation.work is not work]
        self.reading = [reading for reading in self.reading if reading.work is not work]

    def restart(self) -> list[Work]:
        """Forget all rows, prompts and prefixes, and return the requests that they were of."""
        works = [*(row.continuation.work for row in self.rows), *(reading.work for reading in self.reading)]
        self.rows, self.reading = [], []
        self.prefixes.clear()
        return works


def _chosen_together(rows: Sequence[DecodedRow], logits: Tensor) -> dict[int, int | None]:
    """The next tokens of the rows that can be chosen together with others, by their places."""
    groups: dict[Hashable, list[int]] = {}
    for i, row in enumerate(rows):
        if row.continuation.alike is not None:
            groups.setdefault(row.continuation.alike, []).append(i)
    found: dict[int, int | None] = {}
    for places in groups.values():
        own = logits if len(places) == len(rows) else logits[places]
        found.update(zip(places, Continued.choose_together([rows[i].continuation for i in places], own), strict=True))
    return found


def _taken(continuation: Continued, chosen: Tensor | int | None) -> int | None:
    """Append a token that was chosen, or is chosen from logits (1, V); None if the continuation ends.

    What fails ends this continuation alone.
    """
    try:
        token = continuation.choose(chosen) if isinstance(chosen, Tensor) else chosen
        return token if continuation.take(token) else None
    except ValueError as error:
        continuation.end("refused", str(error))
    except Exception:
        _log.exception("a token could not be chosen")
        continuation.end("error", FAILED)
    return None


def _has_our_head(model: Any) -> bool:
    return isinstance(getattr(model, "head", None), LanguageModelHead)


def _keep(work: Work, chunk: Sequence[int], logits: Tensor, done: int) -> None:
    """Keep the log-probabilities of the tokens of a chunk and of the one after it."""
    if not done:
        work.read.append(ChosenToken(chunk[0]))
    following = work.prompt[done + 1 : done + len(chunk) + 1]
    work.read += [described(row, token, work.likeliest or 0) for row, token in zip(logits, following, strict=False)]
