"""Record what a search does for its first prompt: running and finished beams, or every token's distribution by processor.

with trace.record() as search:
    generate(model, [prompt], num_beams=4)
search.beams[0].running
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .logits_processors import Processor

MOST_TOKENS = 5  # of a distribution


class Beam(NamedTuple):
    """A beam: its parent among the running beams of the step before, its last token, and its score.

    score: Σ log p of a running beam; Σ log p / length**length_penalty of a finished one.
    """

    parent: int
    token: int
    score: float


class BeamStep(NamedTuple):
    """The beams that continue after a step, best first, and the finished ones."""

    running: tuple[Beam, ...]
    finished: tuple[Beam, ...]


class Stage(NamedTuple):
    """A distribution: the likeliest tokens with their probabilities, and how many tokens are possible."""

    name: str
    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    possible: int


class TokenChoice(NamedTuple):
    """One token: the distribution of the model and after each processor, and the token that was taken (None: none)."""

    stages: tuple[Stage, ...]
    token: int | None


@dataclass
class Trace:
    """Either `beams`, a step each, or `choices`, a token each."""

    beams: list[BeamStep] = field(default_factory=list)
    choices: list[TokenChoice] = field(default_factory=list)


_traces: ContextVar[tuple[Trace, ...]] = ContextVar("traces", default=())  # of this thread


@contextmanager
def record() -> Iterator[Trace]:
    """Record the searches inside the block, of this thread only."""
    search = Trace()
    before = _traces.set((*_traces.get(), search))
    try:
        yield search
    finally:
        _traces.reset(before)


def recording() -> bool:
    """Whether searches are being recorded."""
    return bool(_traces.get())


def add_beams(running: Sequence[Beam], finished: Sequence[Beam]) -> None:
    """Record a step of a beam search."""
    for search in _traces.get():
        search.beams.append(BeamStep(tuple(running), tuple(finished)))


def add_choice(logits: Tensor, ids: Tensor | None, processors: Sequence[Processor], token: int | None) -> None:
    """Record a token that was chosen from logits (1, V) after the processors."""
    stages = [_stage("model", logits)]
    for process in processors:
        assert ids is not None
        logits = process(ids, logits)
        stages.append(_stage(stage_name(process), logits))
    for search in _traces.get():
        search.choices.append(TokenChoice(tuple(stages), token))


def stage_name(processor: Processor) -> str:
    """Return the name of a processor with its first number: `top k 50`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(processor).__name__).lower()
    first = getattr(processor, fields(processor)[0].name) if is_dataclass(processor) and fields(processor) else None
    return f"{words} {first:g}" if isinstance(first, int | float) else words


def _stage(name: str, logits: Tensor) -> Stage:
    probabilities = logits[0].float().softmax(-1)
    best = probabilities.topk(min(MOST_TOKENS, len(probabilities)))
    kept = [(i, p) for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True) if p > 0]
    possible = int(torch.count_nonzero(logits[0] > -torch.inf))
    return Stage(name, tuple(i for i, _ in kept), tuple(p for _, p in kept), possible)
