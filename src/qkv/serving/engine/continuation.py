"""One continuation of a prompt while it is generated: its settings, its tokens, and what is told about it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ...core.several import texts
from ...generation.logits_processors import ForbiddenTokens, MinNewTokens, Processor, apply, processors_for
from ...generation.sampling import Uniforms, draw, likeliest, row_seed
from ...generation.settings import Generation
from ...runs.inference.loaded import LoadedModel
from .unfolding import Unfolding

_log = logging.getLogger(__name__)

Outcome = Literal["stop", "length", "cancelled", "refused", "error", "crashed"]
"""How a request ended. `refused`: the model can't serve it. `error`: computing it failed. `crashed`: the engine crashed, and
the same request may succeed later."""


class ChosenToken(NamedTuple):
    """A token with its log-probability, and the likeliest tokens in its place, if they were requested."""

    id: int
    log_prob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class NewText(NamedTuple):
    """Text and tokens that are new since the last piece of continuation number `sample`."""

    sample: int
    text: str
    tokens: tuple[ChosenToken, ...]


class Ending(NamedTuple):
    """The end of continuation number `sample`: its whole text, its tokens, and why it ended."""

    sample: int
    text: str
    tokens: tuple[ChosenToken, ...]
    outcome: Outcome
    message: str = ""


Event = NewText | Ending


@dataclass(eq=False)
class Work:
    """What is asked of a decoder: `count` continuations of one prompt.

    prompt:   ids of the decoder's prompt. source: the encoder's, for encoder–decoders.
    stop:     strings before which the text ends. ends: tokens that end it, in addition to the model's.
    likeliest: how many alternatives to report for each token; None reports no log-probabilities.
    echo:     whether log-probabilities of the prompt's tokens are kept in `read`.
    tell:     called on the engine's thread with each event. With `streams`, also with pieces.
    """

    run: LoadedModel
    prompt: Sequence[int]
    settings: Generation
    tell: Callable[[Event], None]
    source: Sequence[int] | None = None
    stop: Sequence[str] = ()
    ends: Sequence[int] = ()
    processors: Sequence[Processor] = ()
    likeliest: int | None = None
    echo: bool = False
    streams: bool = False
    arrived: float = field(default_factory=time.perf_counter)
    cancelled: bool = False
    read: list[ChosenToken] = field(default_factory=list)
    reused: int = 0  # tokens of the prompt that were not computed again
    _ended: set[int] = field(default_factory=set)  # the continuations whose ending was told

    def __post_init__(self) -> None:
        run, self.stop = self.run, texts(self.stop, "stop strings")
        if not self.prompt:
            start = run.start
            if start is None:
                raise ValueError("the prompt is empty, and the model has no token to start from; give some text")
            self.prompt = [start]
        if run.task != "translate":
            self.settings = run.roles.bounded(self.settings, len(self.prompt))
        context, self.limit = run.model.max_positions, self.settings.max_new_tokens
        if context is not None:
            if len(self.prompt) >= context:
                raise ValueError(
                    f"the prompt has {len(self.prompt):,} tokens, which leaves no room in the model's context of "
                    f"{context:,}; shorten it to {context - 1:,} or fewer"
                )
            self.limit = min(self.limit, context - len(self.prompt))
        self.eos = frozenset({*run.ends, *self.ends})

    @property
    def count(self) -> int:
        return self.settings.num_samples if self.settings.samples else 1

    @property
    def tokens(self) -> int:
        """The most tokens that its continuations can have, with the prompt."""
        return (len(self.prompt) + self.limit) * self.count + len(self.source or ())

    def report(self, event: Event) -> None:
        """Tell an event, unless its continuation has ended. If the listener fails, the request is given up."""
        if event.sample in self._ended:
            return
        if isinstance(event, Ending):
            self._ended.add(event.sample)
        try:
            self.tell(event)
        except Exception:
            self.cancelled = True
            _log.exception("the listener of a request failed")

    def give_up(self, outcome: Outcome, message: str = "") -> None:
        """Report the same ending for all continuations that have not ended."""
        for i in range(self.count):
            self.report(Ending(i, "", (), outcome, message))

    def begun(self) -> list[Continued]:
        """Its continuations, before their first token."""
        seed = self.settings.seed if self.settings.seed is not None else int(torch.randint(2**62, ()))
        return [Continued(self, i, row_seed(row_seed(seed, 0), i)) for i in range(self.count)]


class ProcessorChain:
    """Processors of logits, applied one after another.

    looks_back: whether any of them reads the tokens so far. key: equal for equal chains that don't; None for others.
    """

    def __init__(self, processors: Sequence[Processor]) -> None:
        self.processors = processors
        self.looks_back = any(getattr(each, "reads_ids", True) for each in processors)
        self.key: Hashable | None = None if self.looks_back else tuple(processors)
        try:
            hash(self.key)
        except TypeError:  # a processor that can't be compared
            self.key = None


def _at(chain: Sequence[Processor], width: int, is_early: bool) -> Iterator[Processor]:
    """The processors of a chain before or after `width` tokens, at which the minimum is reached; none counts tokens."""
    for each in chain:
        if not isinstance(each, MinNewTokens) or each.width != width:
            yield each
        elif is_early:
            yield ForbiddenTokens(each.eos)


class Continued:
    """One continuation of a `Work`."""

    def __init__(self, work: Work, index: int, seed: int) -> None:
        self.work, self.index = work, index
        run, settings = work.run, work.settings
        own = [*run.processors([work.prompt], settings), *work.processors]
        chain = processors_for(settings, sorted(work.eos), len(work.prompt), own)
        width = len(work.prompt) + settings.min_new_tokens
        self._chains = [ProcessorChain([*_at(chain, width, is_early)]) for is_early in (True, False)]
        self.uniforms = Uniforms([seed], run.model.device) if settings.samples else None
        self.unfolds = work.streams or bool(work.stop)
        self.ids: list[int] = []
        self.chosen: list[ChosenToken] = []
        self.told = 0
        self.text = Unfolding(run, work.prompt, work.stop)

    @property
    def chain(self) -> ProcessorChain:
        """The processors of the next token."""
        return self._chains[len(self.ids) >= self.work.settings.min_new_tokens]

    @property
    def alike(self) -> Hashable | None:
        """What continuations have in common whose tokens can be chosen together; None for one that is chosen alone.

        Processors treat each row by itself, and the tokens before differ in number, so none may look at them.
        """
        key = self.chain.key
        return None if key is None or self.work.likeliest is not None else (key, self.uniforms is None)

    def choose(self, logits: Tensor) -> int | None:
        """Choose the next token from logits (1, V); None if none is allowed."""
        logits, chain = logits.float(), self.chain
        history = torch.tensor([[*self.work.prompt, *self.ids]] if chain.looks_back else [[]], dtype=torch.long)
        allowed = apply(chain.processors, history, logits)
        token = int(likeliest(allowed) if self.uniforms is None else draw(allowed, self.uniforms.draw()))
        if chain.processors and bool(allowed[0, token] == -torch.inf):
            return None
        self.chosen.append(described(logits[0], token, self.work.likeliest))
        return token

    @staticmethod
    def choose_together(continued: Sequence[Continued], logits: Tensor) -> list[int | None]:
        """Choose the next token of each of some that are `alike`, from logits (N, V)."""
        chain, first = continued[0].chain.processors, continued[0].uniforms
        allowed = apply(chain, torch.empty(len(logits), 0, dtype=torch.long), logits.float())
        if first is None:
            tokens = likeliest(allowed)
        else:
            tokens = draw(allowed, torch.cat([each.uniforms.draw() for each in continued if each.uniforms is not None]))
        if not chain:
            return tokens.tolist()
        stuck = (allowed.gather(1, tokens[:, None]).squeeze(1) == -torch.inf).tolist()
        return [None if nothing else token for nothing, token in zip(stuck, tokens.tolist(), strict=True)]

    def take(self, token: int | None) -> bool:
        """Append a token, report the new text, and return whether to continue."""
        if token is None:
            self.end("stop")
            return False
        if len(self.chosen) == len(self.ids):
            self.chosen.append(ChosenToken(token))
        self.ids.append(token)
        is_end = token in self.work.eos
        if not is_end and self.unfolds:
            self.text.add(token)
        if is_end or self.text.is_stopped:
            self.end("stop")
            return False
        if len(self.ids) >= self.work.limit:
            self.end("length")
            return False
        if self.work.streams and (ready := self.text.ready()):
            self._tell(ready)
        return True

    def _tell(self, text: str) -> None:
        new, self.told = tuple(self.chosen[self.told :]), len(self.chosen)
        self.work.report(NewText(self.index, text, new))

    def end(self, outcome: Outcome, message: str = "") -> None:
        text = self.text.whole(self.ids) if outcome in ("stop", "length") else ""
        rest = self.text.rest(text)
        if self.work.streams and (rest or self.told < len(self.chosen)) and outcome in ("stop", "length"):
            self._tell(rest)
        self.work.report(Ending(self.index, text, tuple(self.chosen), outcome, message))


def described(logits: Tensor, token: int, top: int | None) -> ChosenToken:
    """A token with its log-probability under the model, and the `top` likeliest tokens, from logits (V)."""
    if top is None:
        return ChosenToken(token)
    log_probs = logits.float().log_softmax(-1)
    best = log_probs.topk(min(top, len(log_probs))) if top else None
    pairs = () if best is None else tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return ChosenToken(token, float(log_probs[token]), pairs)
