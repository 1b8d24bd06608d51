"""Kinds of speculative decoding as values: prompt look-up, a draft model, early exit.

A speculative step proposes several tokens by something cheap, and one pass of the model checks them all (Leviathan et al.
2023; Chen et al. 2023). Greedy outputs stay the same, and samples keep their distribution.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from ..core.spec import Spec, brief


class Speculation(Spec, role="speculation"):
    """How the next tokens are proposed. In JSON `lookup`, `draft`, `early-exit` and `early-exit:2` are short forms.

    num_speculative_tokens: at most this many tokens are proposed at a time; fewer after some were rejected.
    """

    num_speculative_tokens: int = Field(5, ge=1, le=256)

    @model_validator(mode="wrap")
    @classmethod
    def _short(cls, value: Any, handler: Any) -> Any:
        return handler(_expand(value) if isinstance(value, str) else value)


class PromptLookup(Speculation, kind="lookup"):
    """Prompt look-up (Saxena 2023): what followed the newest n-gram where it occurred before, in the input or the output.

    The longest n-gram of at most `max_ngram` and at least `min_ngram` tokens counts. An encoder–decoder looks in its
    source too, if both sides have the same vocabulary.
    """

    num_speculative_tokens: int = Field(10, ge=1, le=256)
    max_ngram: int = Field(4, ge=1, le=64)
    min_ngram: int = Field(1, ge=1, le=64)

    @model_validator(mode="after")
    def _ordered(self) -> PromptLookup:
        if self.min_ngram > self.max_ngram:
            raise ValueError(f"min_ngram {self.min_ngram} is more than max_ngram {self.max_ngram}")
        return self


class DraftModel(Speculation, kind="draft"):
    """A smaller model with the same vocabulary, which is given to `generate` as `draft`."""


class EarlyExit(Speculation, kind="early-exit"):
    """The model's own first `layers` layers and its head (LayerSkip, Elhoushi et al. 2024), with the model's cache.

    By default a third of the layers, at least one.
    """

    layers: int | None = Field(None, ge=1)


def check_draft(speculate: Speculation | None, draft: object | None) -> None:
    """Raise ValueError if a draft model is missing, or is given and not used."""
    if isinstance(speculate, DraftModel) and draft is None:
        raise ValueError("speculate is 'draft', and there is no draft model; give one (draft=…, --draft RUN)")
    if draft is not None and not isinstance(speculate, DraftModel):
        kind = None if speculate is None else speculate.kind
        raise ValueError(f"speculate is {brief(kind)}, which uses no draft model; leave out speculate or the draft")


def _expand(name: str) -> Any:
    """`early-exit:2` as a mapping; other names unchanged."""
    kind, colon, layers = name.partition(":")
    if not colon or kind != EarlyExit.kind:
        return name
    if not layers.isdecimal() or int(layers) < 1:
        raise ValueError(f"{brief(name)} names no number of layers; write early-exit:2 for the first two layers")
    return {"kind": kind, "layers": int(layers)}
