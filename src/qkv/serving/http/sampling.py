"""The fields of requests that say how to generate, as OpenAI's clients name them, and what they mean here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from ...core.spec import brief
from ...generation.grammar.rules import Grammar
from ...generation.logits_processors import Processor
from ...generation.settings import Generation
from ..engine.continuation import Work
from .bodies import Body
from .served import RequestLimits

Penalty = Annotated[float, Field(ge=-2, le=2)]


class SamplingFields(Body):
    """How to generate. What is left out is as the run's own settings say.

    `temperature` 0 chooses the likeliest token. `top_k`, `min_p`, `repetition_penalty` and `min_tokens` are not OpenAI's.
    """

    model: str | None = None
    max_tokens: int | None = Field(None, ge=0)
    min_tokens: int | None = Field(None, ge=0)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0)
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(None, max_length=1024)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    n: int = Field(1, ge=1, le=128)
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: dict[str, bool] | None = None
    response_format: dict[str, Any] | None = None

    def settings(self, own: Generation) -> Generation:
        """The run's settings with these changes."""
        changes: dict[str, Any] = {"num_beams": 1, "num_samples": 1, "speculate": None}
        names = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}
        names |= {name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")}
        for name, ours in names.items():
            if (value := getattr(self, name)) is not None:
                changes[ours] = value
        if self.max_tokens == 0:
            changes["max_new_tokens"] = 1
        if self.temperature == 0:
            changes |= {"do_sample": False, "temperature": None, "top_p": None, "top_k": None, "min_p": None}
        elif self.temperature is not None or (self.n > 1 and own.do_sample is None):
            changes["do_sample"] = True
        if self.seed is not None:
            changes["seed"] = self.seed % 2**63
        settings = own.replace(changes)
        return settings.replace(num_samples=self.n) if settings.samples else settings

    def check_context(self, work: Work) -> None:
        """Raise ValueError if `max_tokens` exceeds the space that the prompt leaves in the model's context."""
        if self.max_tokens is not None and self.max_tokens > work.limit:
            raise ValueError(
                f"max_tokens is {self.max_tokens:,}, and the model's context has room for {work.limit:,} after the prompt "
                f"of {len(work.prompt):,} tokens; lower max_tokens, or leave it out"
            )

    def stops(self, limits: RequestLimits) -> list[str]:
        """The stop strings. Raises ValueError for too many, or empty ones."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stop) > limits.stops:
            raise ValueError(f"a request has at most {limits.stops} stop strings, and this has {len(stop):,}")
        if not all(stop) or any(len(each) > 1000 for each in stop):
            raise ValueError("a stop string has 1 to 1,000 characters; give the text that ends an output")
        return stop

    def processors(self, vocab_size: int, width: int) -> list[Processor]:
        """OpenAI's penalties and biases, which qkv's settings do not have."""
        found: list[Processor] = []
        if self.presence_penalty or self.frequency_penalty:
            found.append(OutputPenalty(width, self.presence_penalty or 0.0, self.frequency_penalty or 0.0))
        if self.logit_bias:
            found.append(LogitBias(biases(self.logit_bias, vocab_size)))
        return found

    @property
    def grammar(self) -> Grammar | None:
        """The grammar of `response_format`. Raises ValueError for an unknown form."""
        form = self.response_format or {"type": "text"}
        kind = form.get("type")
        if kind == "text":
            return None
        if kind == "json_object":
            return Grammar.json_schema({"type": "object"})
        if kind == "regex":
            return Grammar.regex(str(form.get("regex", "")))
        if kind != "json_schema":
            raise ValueError(
                f"response_format is of the type text, json_object, json_schema or regex, not {brief(kind)}"
            )
        about = form.get("json_schema")
        schema = about.get("schema") if isinstance(about, dict) else None
        if not isinstance(schema, dict):
            raise ValueError('response_format of the type json_schema has {"json_schema": {"name": …, "schema": {…}}}')
        return Grammar.json_schema(schema)

    @property
    def includes_usage(self) -> bool:
        return bool((self.stream_options or {}).get("include_usage"))


def biases(given: Mapping[str, float], vocab_size: int) -> dict[int, float]:
    """Biases by token. Raises ValueError for what is no token."""
    wrong = next((key for key in given if not key.isdecimal() or int(key[:12]) >= vocab_size), None)
    if wrong is not None:
        raise ValueError(f"logit_bias names the token {wrong[:20]}; the vocabulary is 0 … {vocab_size - 1}")
    return {int(key): value for key, value in given.items()}


@dataclass(frozen=True)
class OutputPenalty:
    """Lower the logits of tokens that the output has: by `presence` once, and by `frequency` for each occurrence."""

    width: int  # of the prompt
    presence: float
    frequency: float

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        logits = logits.clone()
        for row, tokens in zip(logits, ids[:, self.width :].tolist(), strict=True):
            for token, count in Counter(tokens).items():
                row[token] -= self.presence + self.frequency * count
        return logits


@dataclass(frozen=True)
class LogitBias:
    """Add a number to the logits of some tokens; −100 and 100 forbid and force them in practice."""

    reads_ids = False
    biases: Mapping[int, float]

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        logits = logits.clone()
        logits[:, list(self.biases)] += torch.tensor(list(self.biases.values()), dtype=logits.dtype)
        return logits


def checked_texts(texts: Sequence[str], limits: RequestLimits, name: str) -> list[str]:
    """The texts of a request. Raises ValueError for none, too many, or one that is too long."""
    if not texts:
        raise ValueError(f"{name} is empty; give at least one text")
    if len(texts) > limits.texts:
        raise ValueError(f"{name} has {len(texts):,} texts, and a request has at most {limits.texts:,}")
    longest = max(map(len, texts))
    if longest > limits.characters:
        raise ValueError(f"{name} has a text of {longest:,} characters, and at most {limits.characters:,} are allowed")
    if any("\ud800" <= c <= "\udfff" for text in texts for c in text if c > "\ud7ff"):
        raise ValueError(f"{name} has half a character (a lone surrogate); send whole characters")
    return list(texts)
