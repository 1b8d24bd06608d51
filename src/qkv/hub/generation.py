"""The Hub's generation settings as ours, and back: dictionaries in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Config = Mapping[str, Any]

# Theirs, ours, and what theirs means where it is left out.
FIELDS: tuple[tuple[str, str, Any], ...] = (
    ("num_beams", "num_beams", 1),
    ("length_penalty", "length_penalty", 1.0),
    ("early_stopping", "early_stopping", False),
    ("num_return_sequences", "num_samples", 1),
    ("min_new_tokens", "min_new_tokens", 0),
    ("do_sample", "do_sample", False),
    ("repetition_penalty", "repetition_penalty", 1.0),
    ("no_repeat_ngram_size", "no_repeat_ngram_size", 0),
)
SAMPLING: tuple[tuple[str, str, Any], ...] = (
    ("temperature", "temperature", 1.0),
    ("top_k", "top_k", 50),
    ("top_p", "top_p", 1.0),
    ("min_p", "min_p", None),
)
# Settings that we lack, with the value at which they do nothing. Those of sampling only count where there is sampling.
UNBUILT: dict[str, Any] = {
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "guidance_scale": 1.0,
    "constraints": None,
    "force_words_ids": None,
    "stop_strings": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "renormalize_logits": False,
}
UNBUILT_SAMPLING: dict[str, Any] = {"typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "top_h": None}
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


@dataclass(frozen=True)
class Ids:
    """Which tokens have roles in generation.

    start:  what a decoder starts from (an encoder–decoder's own start token, else the beginning of a sequence).
    ends:   any of them ends a sequence.
    forced: the first token that is generated, and the last when the length runs out.
    banned: sequences of tokens that are never generated.
    """

    start: int | None = None
    ends: tuple[int, ...] = ()
    pad: int | None = None
    forced: tuple[int | None, int | None] = (None, None)
    banned: tuple[tuple[int, ...], ...] = ()

    def processors(self, width: int, max_new_tokens: int) -> list[Forced | Banned]:
        """What changes logits, for prompts of a width."""
        made: list[Forced | Banned] = [Banned(self.banned)] if self.banned else []
        places = (width, width + max_new_tokens - 1)
        forced = {place: token for place, token in zip(places, self.forced, strict=True) if token is not None}
        return [*made, Forced(forced)] if forced else made


@dataclass(frozen=True)
class Forced:
    """At a place (a width of `ids`) one token is the only one left; it costs nothing."""

    tokens: Mapping[int, int]

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        token = self.tokens.get(ids.shape[1])
        if token is None:
            return logits
        only = torch.full_like(logits, -torch.inf)
        only[:, token] = 0.0
        return only


@dataclass(frozen=True)
class Banned:
    """No row goes on to complete one of the sequences of tokens."""

    words: tuple[tuple[int, ...], ...]

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        logits = logits.clone()
        for *before, last in self.words:
            n = len(before)
            if n <= ids.shape[1]:
                tail = ids[:, ids.shape[1] - n :]
                hit = (tail == torch.tensor(before, dtype=ids.dtype, device=ids.device)).all(1)
                logits[:, last] = logits[:, last].masked_fill(hit, -torch.inf)
        return logits


def read(generation: Config, config: Config, is_encoder_decoder: bool) -> tuple[dict[str, Any], Ids]:
    """The fields of a `Generation`, and the ids, by a `generation_config.json` and a `config.json`.

    Where there is no generation_config.json, give the configuration in its place: old ones hold the settings too.
    Raises ValueError naming a setting that would change outputs and is not built here.
    """
    _check_built(generation)
    fields = {ours: _given(generation, theirs, default) for theirs, ours, default in FIELDS}
    if fields["do_sample"]:
        fields |= {ours: _given(generation, theirs, default) for theirs, ours, default in SAMPLING}
    if generation.get("max_new_tokens") is not None:
        fields["max_new_tokens"] = generation["max_new_tokens"]
    elif generation.get("max_length") is not None and is_encoder_decoder:
        fields["max_new_tokens"] = max(generation["max_length"] - 1, 1)  # all but the start token
    both = {**config, **{key: value for key, value in generation.items() if value is not None}}
    eos = both.get("eos_token_id")
    start = both.get("decoder_start_token_id") if is_encoder_decoder else None
    ids = Ids(
        start=both.get("bos_token_id") if start is None else start,
        ends=() if eos is None else (eos,) if isinstance(eos, int) else tuple(eos),
        pad=both.get("pad_token_id"),
        forced=(_first(both.get("forced_bos_token_id")), _first(both.get("forced_eos_token_id"))),
        banned=tuple(tuple(words) for words in both.get("bad_words_ids") or ()),
    )
    return fields, ids


def write(fields: Mapping[str, Any], origin: Config, config: Config) -> dict[str, Any]:
    """A `generation_config.json` for the fields of a `Generation`; what else stood in the `origin` is kept.

    The ids come from the origin, or from the model's configuration.
    """
    made = {key: config[key] for key in IDS if config.get(key) is not None} | dict(origin)
    for theirs, ours, default in (*FIELDS, *SAMPLING):
        value = fields[ours]
        if value is None or value == _given(made, theirs, default):
            continue
        made[theirs] = value
    if "max_length" not in made or "max_new_tokens" in made:
        made["max_new_tokens"] = fields["max_new_tokens"]
    return made


def _first(value: Any) -> int | None:
    return value[0] if isinstance(value, list) else value


def _check_built(generation: Config) -> None:
    unbuilt = {**UNBUILT, **(UNBUILT_SAMPLING if generation.get("do_sample") else {})}
    for key, neutral in unbuilt.items():
        value = generation.get(key)
        if value is not None and value != neutral:
            raise ValueError(
                f"the generation setting {key}={value!r} is not built here; remove it, or make it {neutral!r}"
            )


def _given(config: Config, key: str, default: Any) -> Any:
    value = config.get(key)
    return default if value is None else value
