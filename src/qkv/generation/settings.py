"""`Generation`: the settings of decoding, as in `generation_config.json`: beams, sampling, lengths, penalties, cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import Field, field_validator, model_validator

from ..core.spec import Spec
from ..nn.kv_cache.kinds import CacheKind, FullCache, PagedCache, named
from .speculation import Speculation

Finite = Annotated[float, Field(allow_inf_nan=False)]

MOST = 16_384  # beams, and results of a prompt: all are decoded together

SAMPLING = ("temperature", "top_k", "top_p", "min_p")  # setting one of these turns sampling on


class Generation(Spec):
    """Settings of generation. The defaults are greedy decoding of at most 128 new tokens.

    Search:
        num_beams:      1 is greedy decoding or sampling; more is beam search with that many beams.
        length_penalty: a finished hypothesis scores Σ log p / length**length_penalty; above 0 favors longer ones.
        early_stopping: when a beam search ends. True: as soon as num_beams hypotheses are finished. False: when the
                        best running beam, at its present length, can't beat the worst finished one. "never": when it
                        can't even at its best length (with a positive penalty, the greatest).
        num_samples:    results per prompt: the n best of a beam search, or independent samples.
        max_new_tokens, min_new_tokens: bounds on the number of new tokens, including the end-of-sequence token, which is
                        forbidden below the minimum.

    Sampling, on when `do_sample` is True, or is None and one of these fields (or num_samples > 1 without beams) is set:
        temperature: divisor of the logits; values below 1 sharpen the distribution.
        top_k:       only the k likeliest tokens (0: all).
        top_p:       only the likeliest tokens that together reach this probability (Holtzman et al. 2020).
        min_p:       only tokens at least this fraction as likely as the likeliest (Nguyen et al. 2024).
        seed:        makes samples repeatable; None draws a seed from PyTorch's global generator.

    Repetition:
        repetition_penalty:   makes earlier tokens less likely, by this factor on their logits (Keskar et al. 2019).
        no_repeat_ngram_size: no n-gram of this size occurs twice (0: off).

    Speed:
        speculate: propose several tokens at a time and check them in one pass: "lookup", "draft" (with a draft model),
               "early-exit", "early-exit:2" or a `Speculation` such as {"kind": "lookup", "max_ngram": 3}. Greedy outputs
               stay the same, and samples keep their distribution.

    Memory:
        cache: the kind of KV cache: None for all keys and values unchanged, "int8", "int4", or a `CacheKind` such as
               {"kind": "sinks", "window": 1024}, with which a text may be longer than the model's context.
    """

    num_beams: int = Field(1, ge=1, le=MOST)
    length_penalty: Finite = Field(1.0, ge=-10, le=10)
    early_stopping: bool | Literal["never"] = False
    num_samples: int = Field(1, ge=1, le=MOST)
    max_new_tokens: int = Field(128, ge=1)
    min_new_tokens: int = Field(0, ge=0)
    do_sample: bool | None = None
    temperature: Finite | None = Field(None, gt=0)
    top_k: int | None = Field(None, ge=0)
    top_p: Finite | None = Field(None, gt=0, le=1)
    min_p: Finite | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    repetition_penalty: Finite = Field(1.0, gt=0)
    no_repeat_ngram_size: int = Field(0, ge=0)
    speculate: Speculation | None = None
    cache: CacheKind | None = None

    @field_validator("cache", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return named(value) if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _in_ours(cls, value: Any) -> Any:
        return _by_our_names(value) if isinstance(value, Mapping) else value

    def replace(self, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """`Spec.replace`. `model_fields_set` stays what has been set, here or before: a Hub model's bounds of whole
        sequences hold unless bounds of new tokens are among it."""
        if changes is None or isinstance(changes, Mapping):
            changes, fields = _by_our_names({**(changes or {}), **fields}), {}
        new = super().replace(changes, **fields)
        changed = {path.split(".")[0] for path in {**(changes or {}), **fields}}
        object.__setattr__(new, "__pydantic_fields_set__", self.model_fields_set | changed)
        return new

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn at random."""
        if self.do_sample is not None:
            return self.do_sample
        return self.num_beams == 1 and (self.num_samples > 1 or bool(self._set_sampling()))

    def _set_sampling(self) -> list[str]:
        return [name for name in SAMPLING if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(f"min_new_tokens {self.min_new_tokens} is more than max_new_tokens {self.max_new_tokens}")
        if self.num_beams > 1:
            names = ["do_sample"] if self.do_sample else self._set_sampling() if self.do_sample is None else []
            if names:
                raise ValueError(
                    f"{names[0]} asks for sampling, but num_beams {self.num_beams} is a beam search, which doesn't "
                    f"sample; set num_beams to 1 or leave {names[0]} out"
                )
            if self.speculate is not None:
                raise ValueError(
                    f"speculate is for greedy decoding and sampling, not for a beam search (num_beams {self.num_beams}); "
                    "set num_beams to 1 or leave speculate out"
                )
        if self.speculate is not None and not isinstance(self.cache, FullCache | PagedCache | None):
            raise ValueError(
                f"speculate removes rejected tokens from the cache, which the cache {self.cache.kind!r} can't do; use the "
                "cache full or paged, or leave speculate out"
            )
        if not self.samples and self.num_samples > self.num_beams:
            raise ValueError(
                f"num_samples {self.num_samples} is more than num_beams {self.num_beams}; "
                "raise num_beams, or sample (do_sample)"
            )
        return self


def _by_our_names(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options by qkv's names, for example `num_samples` for transformers' `num_return_sequences`."""
    if options.keys() <= Generation.model_fields.keys():
        return options
    from ..core.synonyms import in_ours

    return in_ours(options, Generation.model_fields, "generation")


class SingleOutputOptions(TypedDict, total=False):
    """The fields of `Generation` as keyword options, except `num_samples`."""

    num_beams: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    max_new_tokens: int
    min_new_tokens: int
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    repetition_penalty: float
    no_repeat_ngram_size: int
    speculate: Speculation | str | Mapping[str, Any] | None
    cache: CacheKind | str | Mapping[str, Any] | None


class GenerationOptions(SingleOutputOptions, total=False):
    """The fields of `Generation` as keyword options."""

    num_samples: int
