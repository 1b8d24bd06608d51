"""Greedy decoding and sampling: one token per row and step; finished rows leave the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import pace, trace
from .logits_processors import apply
from .model_interface import DecodingModel, settled
from .prompts import Prompts
from .result import Hypothesis
from .sampling import Uniforms, draw, likeliest, row_seed
from .settings import Generation
from .stopping import SearchOptions

# Called with (prompt · num_samples + sample, token) as tokens come. It must not change the model.
Stream = Callable[[int, int], None]


def search(
    model: DecodingModel,
    prompts: Prompts,
    rules: SearchOptions,
    *,
    seeds: Sequence[int] = (),
    stream: Stream | None = None,
) -> list[list[Hypothesis]]:
    """Continue every prompt `num_samples` times, by the likeliest token or, if the settings ask for sampling, a drawn one.

    `seeds` holds one number per prompt.
    """
    rows = _Rows(model, prompts, rules, seeds)
    with settled(rows.cache):
        while True:
            tokens, picked = rows.choose()
            pace.chosen()
            going = rows.take(picked, prompts.limits, stream)
            if not going:
                return scored(rows.hypotheses, rules.settings)
            rows.advance(tokens, going)


class _Rows:
    """The rows that are not finished, with their cache, history and random numbers."""

    def __init__(self, model: DecodingModel, prompts: Prompts, rules: SearchOptions, seeds: Sequence[int]) -> None:
        n = rules.settings.num_samples
        self.model, self.rules = model, rules
        self.cache, self.logits = prompts.prefill(model)
        self.history = prompts.history() if rules.processors else None
        self.uniforms: Uniforms | None = None
        if rules.settings.samples:
            self.uniforms = Uniforms([row_seed(seed, i) for seed in seeds for i in range(n)], self.logits.device)
        self.hypotheses = [Hypothesis() for _ in range(len(prompts) * n)]
        self.active = list(range(len(self.hypotheses)))  # the hypothesis that each row of the batch continues
        if n > 1:  # the prompt was read once, and its samples diverge from here
            rows = torch.arange(len(prompts), device=self.logits.device).repeat_interleave(n)
            self.cache.reorder(rows)
            self.logits = self.logits[rows]
            self.history = None if self.history is None else self.history[rows]

    def choose(self) -> tuple[Tensor, list[tuple[int | None, float]]]:
        """Return the next token of every row, on the device and, with its log-probability, on the host.

        On the host it is None if the processors allow no token.
        """
        logits = self.logits.float()
        allowed = apply(self.rules.processors, self.history, logits)
        tokens = likeliest(allowed) if self.uniforms is None else draw(allowed, self.uniforms.draw())
        log_probs = [0.0] * len(self.active)
        if self.rules.log_probs:
            log_probs = (logits.gather(1, tokens[:, None]).squeeze(1) - logits.logsumexp(-1)).tolist()
        host = tokens.tolist()
        if self.rules.processors:
            stuck = (allowed.gather(1, tokens[:, None]).squeeze(1) == -torch.inf).tolist()
            host = [None if nothing else token for nothing, token in zip(stuck, host, strict=True)]
        if trace.recording() and self.active[0] == 0:
            history = None if self.history is None else self.history[:1]
            trace.add_choice(logits[:1], history, self.rules.processors, host[0])
        return tokens, list(zip(host, log_probs, strict=True))

    def take(
        self, picked: Sequence[tuple[int | None, float]], limits: Sequence[int], stream: Stream | None
    ) -> list[int]:
        """Append the chosen tokens to the rows. Returns the places of the rows that continue; `limits` are the
        prompts'."""
        going = []
        for place, row in enumerate(self.active):
            token, log_prob = picked[place]
            if token is None:
                continue
            hypothesis = self.hypotheses[row]
            hypothesis.tokens.append(token)
            hypothesis.log_probs.append(log_prob)
            if stream is not None:
                stream(row, token)
            reason = self.rules.ending(hypothesis.tokens, limits[row // self.rules.settings.num_samples])
            if reason is None:
                going.append(place)
            else:
                hypothesis.reason = reason
        return going

    def advance(self, tokens: Tensor, going: list[int]) -> None:
        """Feed the chosen tokens of the rows at the places `going`; the other rows leave the batch."""
        if self.history is not None:
            self.history = torch.cat([self.history, tokens[:, None]], 1)
        if len(going) < len(self.active):
            keep = torch.tensor(going, device=tokens.device)
            self.cache.reorder(keep)
            tokens, self.active = tokens[keep], [self.active[place] for place in going]
            self.history = None if self.history is None else self.history[keep]
            if self.uniforms is not None:
                self.uniforms.keep(going)
        self.logits = self.model.step(tokens[:, None], self.cache)


def scored(hypotheses: list[Hypothesis], settings: Generation) -> list[list[Hypothesis]]:
    """Return the continuations with their scores, `num_samples` per prompt."""
    for one in hypotheses:
        one.score = sum(one.log_probs) / max(len(one.tokens), 1) ** settings.length_penalty
    n = settings.num_samples
    return [hypotheses[i : i + n] for i in range(0, len(hypotheses), n)]
