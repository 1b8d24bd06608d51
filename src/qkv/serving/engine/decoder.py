"""A model that decodes for many requests: prompts are read in chunks, and rows are stepped together."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...core.layout import Layout
from ...generation.model_interface import settled
from ...generation.prompts import ROOM
from ...nn.kernels.native.products import ANY, PANELS, in_one_order
from ...nn.kv_cache.cache import Cache
from ...nn.models.fused_step.rows import FusedRows, RowCache
from ...nn.models.heads.language_model import LanguageModelHead
from ...runs.inference.loaded import LoadedModel
from .continuation import ChosenToken, Continued, Work, described
from .crashes import Crashes
from .prefixes import Prefixes
from .statistics import Statistics
from .text_jobs import encodes_exactly, reads_exactly

_log = logging.getLogger(__name__)
FAILED = "the server failed at this request; its log says why"
CHUNK = 256
"""Tokens of a prompt that are read at a time. Chunks end at its multiples, so a prompt is always read in the same ones."""
BLOCK = 16
"""Tokens of a block of the prefix cache, if a token's numbers don't depend on the chunk that it is read in; else `CHUNK`."""

SOURCES = 2048
"""Tokens of sources that an encoder reads at a time."""
LONGEST_SOURCE = 1024
"""Tokens of a source that may be read with others: the kernels leave longer ones with a bias on scores to the modules."""


class PromptReading:
    """A prompt that is being read: how far, and its cache; None while an encoder has its source to read."""

    def __init__(self, work: Work, cache: Cache | None) -> None:
        self.work, self.done = work, 0
        self.cache: Any = cache

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
    only by `FusedRows` in order, else one by one. They don't depend on the prefix cache either: prompts are read in panels
    (`reads_in_panels`), or in the same chunks with and without it. With `fast`, products are as fast as they can be.
    """

    def __init__(self, run: LoadedModel, statistics: Statistics, fast: bool = False, prefix_bytes: int = 0) -> None:
        model: Any = run.model
        self.run, self.statistics, self.model = run, statistics, model
        self.rows: list[DecodedRow] = []
        self.reading: list[PromptReading] = []
        in_panels = not fast and reads_exactly(model)
        self.order = PANELS if in_panels else ANY  # of products while prompts are read
        joins = not fast and model.encoder is not None and encodes_exactly(model)
        self.source_order, self.joins_sources = PANELS if joins else ANY, joins or fast
        self.prefixes = Prefixes(prefix_bytes, BLOCK if in_panels or fast else CHUNK)
        self.crashes = Crashes()
        self.is_leaving = False  # once it has finished its requests
        fused = FusedRows(model, in_order=not fast) if _has_our_head(model) else None
        self.fused = fused if fused is not None and fused.serves else None

    def begin(self, work: Work) -> None:
        """Take up a request."""
        kind, cache = work.settings.cache, None
        if work.source is None:
            cache = self.model.start(1, capacity=_room(work), **({} if kind is None else {"cache": kind}))
        self.reading.append(PromptReading(work, cache))

    def read(self) -> int:
        """Read the next chunk of the oldest prompt, or sources that wait; returns the number of tokens."""
        reading = self.reading[0]
        if reading.cache is None:
            return self._read_sources()
        work, shares = reading.work, _shares(reading.work)
        if shares and not reading.done:  # only now, because prompts that were read meanwhile may begin alike
            reading.done = work.reused = self.prefixes.fill(work.prompt, reading.cache)
        chunk = reading.next
        with settled(reading.cache), in_one_order(self.order):
            if work.echo:
                logits = self.model.step(torch.tensor([chunk]), reading.cache, None, True)
                _keep(work, chunk, logits[0].float(), reading.done)
                logits = logits[:, -1]
            else:
                logits = self.model.step(torch.tensor([chunk]), reading.cache)
        reading.done += len(chunk)
        self.statistics.prompt_tokens += len(chunk)
        if shares:
            self.prefixes.keep(work.prompt[: reading.done], reading.cache)
        if reading.done == len(work.prompt):
            self._split(reading, logits)
            self.reading.remove(reading)
        return len(chunk)

    def _read_sources(self) -> int:
        """Let the encoder read the oldest source, and others that wait if that changes no number."""
        some = self._joined()
        try:
            caches = self._started([each.work for each in some])
        except Exception:  # of one source, which harms no other
            if len(some) == 1:
                raise
            some = some[:1]
            caches = self._started([some[0].work])
        for reading, cache in zip(some, caches, strict=True):
            reading.cache = cache
            if self._begins_with_a_step(reading):
                (continuation,) = reading.work.begun()
                self.rows.append(DecodedRow(continuation, reading.cache, reading.work.prompt[0], True))
                self.reading.remove(reading)
                self.statistics.prompt_tokens += 1
        return sum(len(each.work.source or ()) for each in some)

    def _joined(self) -> list[PromptReading]:
        """The oldest reading and those whose sources can be read together with its source."""
        some, left = self.reading[:1], SOURCES - len(self.reading[0].work.source or ())
        longest = min(LONGEST_SOURCE, self.model.max_positions or LONGEST_SOURCE)
        if not self.joins_sources or left < SOURCES - longest:
            return some
        for each in self.reading[1:]:
            length = len(each.work.source or ())
            if each.cache is None and length <= min(left, longest):
                some.append(each)
                left -= length
        return some

    def _started(self, works: Sequence[Work]) -> list[Any]:
        """Encode the sources together, and return a cache for the decoder of each."""
        sources = [torch.tensor(list(work.source or ())) for work in works]
        with in_one_order(self.source_order):
            if len(works) == 1:
                return [self.model.start(source=sources[0][None], capacity=_room(works[0]))]
            lengths = [len(source) for source in sources]
            memory = self.model.encoder(pad_sequence(sources, batch_first=True), Layout.from_lengths(lengths))
            return [
                self.model.start_from(own[None, :length].clone(), Layout.full(length))
                for own, length in zip(memory, lengths, strict=True)
            ]

    def _begins_with_a_step(self, reading: PromptReading) -> bool:
        """Whether the only token of a prompt can be fed together with other rows' next tokens."""
        work = reading.work
        is_short = len(work.prompt) == 1 and work.count == 1 and not work.echo
        return is_short and self.fused is not None and self.fused.takes(reading.cache)

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
            if len(row.continuation.ids) == 1:  # whose prompt was fed here
                self.statistics.first_token(time.perf_counter() - row.continuation.work.arrived)
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


def _room(work: Work) -> int:
    """The tokens for which a cache has room at the start."""
    return len(work.prompt) + min(work.limit, ROOM)


def _shares(work: Work) -> bool:
    """Return whether a request may use the prefix cache."""
    return work.source is None and work.settings.cache is None and not work.echo


def _has_our_head(model: Any) -> bool:
    return isinstance(getattr(model, "head", None), LanguageModelHead)


def _keep(work: Work, chunk: Sequence[int], logits: Tensor, done: int) -> None:
    """Keep the log-probabilities of the tokens of a chunk and of the one after it."""
    if not done:
        work.read.append(ChosenToken(chunk[0]))
    following = work.prompt[done + 1 : done + len(chunk) + 1]
    work.read += [described(row, token, work.likeliest or 0) for row, token in zip(logits, following, strict=False)]
