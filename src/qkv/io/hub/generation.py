"""The Hub's generation settings as ours, and back: dictionaries in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...core.spec import brief
from .values import Either, Flag, List, Maybe, ObjectKind, Real, StringKind, ValueKind, Whole

if TYPE_CHECKING:
    from ...generation import Generation

Config = Mapping[str, Any]

USUAL_LENGTH = 128  # new tokens where nothing is said

# Theirs, ours, and what theirs means where it is left out.
FIELDS: tuple[tuple[str, str, Any], ...] = (
    ("num_beams", "num_beams", 1),
    ("length_penalty", "length_penalty", 1.0),
    ("early_stopping", "early_stopping", False),
    ("num_return_sequences", "num_samples", 1),
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
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": None}  # what a setting of sampling is where we have None
# Settings that we lack, with the value at which they do nothing. Those of sampling only count if there is sampling.
UNBUILT: dict[str, Any] = {
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
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
OWN = "qkv"
"""The key of a decoder's bounds of new tokens in a file that we write. Files of transformers' decoders have none, and
lm-evaluation-harness and vLLM would prefer `max_new_tokens` in the file to what a task or a request asks for."""

IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")

_COUNT, _NUMBER = Whole(0, 1 << 30), Real(-1e9, 1e9)
_BOUNDS: dict[str, ValueKind] = {"max_new_tokens": Whole(1, 1 << 30), "min_new_tokens": _COUNT}
_TOKEN = Whole(-1, 1 << 30)  # -1 is no token, in old files
_TOKENS = Either(_TOKEN, List(_TOKEN, 4096))
KINDS: dict[str, ValueKind] = {
    **dict.fromkeys(("num_beams", "num_return_sequences"), Whole(1, 4096)),
    **_BOUNDS,
    "max_length": Whole(1, 1 << 30),
    **dict.fromkeys(("min_length", "no_repeat_ngram_size", "top_k"), _COUNT),
    **dict.fromkeys(("length_penalty", "repetition_penalty", "temperature", "top_p", "min_p"), _NUMBER),
    "do_sample": Flag(),
    "early_stopping": Either(Flag(), StringKind()),
    **dict.fromkeys((*IDS, "forced_bos_token_id", "forced_eos_token_id"), _TOKENS),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"), List(_TOKEN, 1 << 16)),
    "bad_words_ids": List(List(Whole(0, 1 << 30), 256, 1), 4096),
}


@dataclass(frozen=True)
class Ids:
    """Which tokens have roles in generation.

    start:  what a decoder starts from (an encoder–decoder's own start token, else the beginning of a sequence).
    ends:   any of them ends a sequence.
    forced: the second token of a sequence, so the first that an encoder–decoder generates, and the last when the length
            runs out.
    banned: sequences of tokens that are never generated.
    first:  tokens that are not generated first.
    whole:  the most and the fewest tokens of a decoder's sequence, its prompt included, if the new tokens have no
            bound.
    """

    start: int | None = None
    ends: tuple[int, ...] = ()
    pad: int | None = None
    forced: tuple[int | None, int | None] = (None, None)
    banned: tuple[tuple[int, ...], ...] = ()
    first: tuple[int, ...] = ()
    whole: tuple[int | None, int | None] = (None, None)

    @property
    def depend_on_length(self) -> bool:
        """Whether the length of a prompt changes what they mean."""
        return self.forced[0] is not None or self.whole != (None, None)

    def bounded(self, settings: Generation, width: int) -> Generation:
        """Settings with the bounds of new tokens that the bounds of whole sequences leave for prompts of a width, unless
        the settings have been given such a bound. Raises ValueError if they leave no token."""
        most, fewest = self.whole
        bounds: dict[str, int] = {}
        if most is not None and "max_new_tokens" not in settings.model_fields_set:
            if width >= most:
                raise ValueError(
                    f"the prompt has {width:,} tokens, and the model's generation_config.json allows {most:,} with the new "
                    f"ones (max_length); shorten it, or give max_new_tokens"
                )
            bounds["max_new_tokens"] = most - width
        if fewest is not None and "min_new_tokens" not in settings.model_fields_set:
            bounds["min_new_tokens"] = min(
                max(0, fewest - width), bounds.get("max_new_tokens", settings.max_new_tokens)
            )
        return settings.replace(bounds) if bounds else settings

    def unbounded(self, settings: Generation) -> Generation:
        """Return the settings from a complete file. Bounds of whole sequences leave the bounds of new tokens unset."""
        names = {name for name, bound in zip(("max_new_tokens", "min_new_tokens"), self.whole, strict=True) if bound}
        return type(settings).from_dict({k: v for k, v in settings.to_dict().items() if k not in names})

    def processors(self, width: int, max_new_tokens: int) -> list[Processor]:
        """What changes logits, for prompts of a width."""
        processors: list[Processor] = [Banned(self.banned)] if self.banned else []
        if self.first:
            begins = width + (width == 1 and self.forced[0] is not None)
            processors.append(BannedFirst(self.first, begins))
        places = (1, width + max_new_tokens - 1)
        forced = {place: token for place, token in zip(places, self.forced, strict=True) if token is not None}
        return [*processors, Forced(forced)] if forced else processors


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
    """No row continues to complete one of the sequences of tokens."""

    words: tuple[tuple[int, ...], ...]

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        logits = logits.clone()
        logits[:, [word[0] for word in self.words if len(word) == 1]] = -torch.inf
        for *before, last in self.words:
            n = len(before)
            if 0 < n <= ids.shape[1]:
                tail = ids[:, ids.shape[1] - n :]
                hit = (tail == torch.tensor(before, dtype=ids.dtype, device=ids.device)).all(1)
                logits[:, last] = logits[:, last].masked_fill(hit, -torch.inf)
        return logits


@dataclass(frozen=True)
class BannedFirst:
    """At one width of `ids`, that of the prompt, some tokens are not chosen."""

    tokens: tuple[int, ...]
    width: int

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        if ids.shape[1] != self.width:
            return logits
        logits = logits.clone()
        logits[:, list(self.tokens)] = -torch.inf
        return logits


Processor = Forced | Banned | BannedFirst


def read(
    generation: Config, config: Config, is_encoder_decoder: bool, vocab_size: int | None = None
) -> tuple[dict[str, Any], Ids]:
    """The fields of a `Generation`, and the ids, by a `generation_config.json` and a `config.json`.

    If there is no generation_config.json, give the configuration in its place: old ones hold the settings too. Raises
    ValueError naming a setting that is of a wrong type, or would change outputs and is not built here, or a token that
    is not in the vocabulary.
    """
    if generation is not config:  # there, the key is for a model's spec and task
        Maybe(ObjectKind(_BOUNDS, len(_BOUNDS))).check(generation.get(OWN), OWN)
        generation = _with_own_bounds(generation)
    both = {**config, **{key: value for key, value in generation.items() if value is not None}}
    for key, kind in KINDS.items():
        Maybe(kind).check((both if key in IDS else generation).get(key), key)
    _check_built(generation)
    fields = {ours: _given(generation, theirs, default) for theirs, ours, default in FIELDS}
    if fields["do_sample"]:
        fields |= {ours: _given(generation, theirs, default) for theirs, ours, default in SAMPLING}
    elif fields["num_samples"] <= fields["num_beams"]:
        fields["do_sample"] = None  # greedy, until somebody asks for a temperature
    fields |= _lengths(generation, is_encoder_decoder)
    return fields, _ids(both, generation, is_encoder_decoder, vocab_size)


def without_unknown(said: Config, vocab_size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file says without the tokens of `IDS` that are outside the vocabulary, and those, by key.

    Files are written with them: `transformers` keeps GPT-2's 50256 in the configuration of a GPT-2 of any vocabulary.
    """

    def outside(token: Any) -> bool:
        return isinstance(token, int) and token >= vocab_size

    kept, unknown = dict(said), {}
    for key in IDS:
        value = said.get(key)
        if isinstance(value, list) and any(map(outside, value)):
            kept[key] = [token for token in value if not outside(token)]
        elif outside(value):
            kept[key] = None
        else:
            continue
        unknown[key] = value
    return kept, unknown


def _with_own_bounds(generation: Config) -> Config:
    """Return the settings with the bounds under `OWN` moved to the top level."""
    return {**{key: value for key, value in generation.items() if key != OWN}, **(generation.get(OWN) or {})}


def _lengths(generation: Config, is_encoder_decoder: bool) -> dict[str, int]:
    """Return the bounds of new tokens. Bounds of an encoder–decoder's whole sequence also count its start token."""
    bounds: dict[str, int] = {}
    for new, whole, least in (("max_new_tokens", "max_length", 1), ("min_new_tokens", "min_length", 0)):
        if generation.get(new) is not None:
            bounds[new] = generation[new]
        elif generation.get(whole) is not None and is_encoder_decoder:
            bounds[new] = max(generation[whole] - 1, least)
    return bounds


def _whole(generation: Config) -> tuple[int | None, int | None]:
    """The bounds of a decoder's sequence that no bound of new tokens replaces."""
    most, fewest = (
        None if generation.get(new) is not None else generation.get(whole)
        for new, whole in (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length"))
    )
    return most, fewest or None


def _ids(both: Config, generation: Config, is_encoder_decoder: bool, vocab_size: int | None) -> Ids:
    """The ids. Forced tokens and banned words count in the file of generation alone, if there is one, as in transformers."""
    start, begins = _token(both, "bos_token_id"), _token(both, "decoder_start_token_id")
    if is_encoder_decoder and begins is not None:
        start = begins
    eos = both.get("eos_token_id")
    ids = Ids(
        start=start,
        ends=tuple(token for token in (eos if isinstance(eos, list) else [eos]) if token is not None and token >= 0),
        pad=_token(both, "pad_token_id"),
        forced=(_token(generation, "forced_bos_token_id"), _token(generation, "forced_eos_token_id")),
        banned=(
            *(tuple(words) for words in generation.get("bad_words_ids") or ()),
            *((token,) for token in _suppressed(generation, "suppress_tokens", vocab_size)),
        ),
        first=_suppressed(generation, "begin_suppress_tokens", vocab_size),
        whole=(None, None) if is_encoder_decoder else _whole(generation),
    )
    used: dict[str, tuple[int | None, ...]] = {"a forced token's id": ids.forced}
    used["bad_words_ids"] = tuple(token for words in generation.get("bad_words_ids") or () for token in words)
    for key, tokens in used.items():
        unknown = [token for token in tokens if token is not None and vocab_size and token >= vocab_size]
        if unknown and vocab_size:
            raise ValueError(f"{key} is {unknown[0]}, and the model's vocabulary ends at {vocab_size - 1}")
    return ids


def _suppressed(generation: Config, key: str, vocab_size: int | None) -> tuple[int, ...]:
    """Return the tokens of a setting that are in the vocabulary. Files of small models may keep tokens of larger ones."""
    return tuple(token for token in generation.get(key) or () if 0 <= token < (vocab_size or token + 1))


def write(fields: Mapping[str, Any], origin: Config, config: Config, samples: bool) -> dict[str, Any]:
    """A `generation_config.json` for the fields of a `Generation`; what else stood in the `origin` is kept.

    `samples` says whether these fields sample (`Generation.samples`): there, a temperature alone asks for it, and every
    token is in play unless `top_k` says otherwise. The library wants `do_sample`, and has its own default `top_k`. The
    ids come from the origin, or from the model's configuration.
    """
    settings = {key: config[key] for key in IDS if config.get(key) is not None} | dict(origin)
    if not samples and settings.get("do_sample"):
        settings = {key: value for key, value in settings.items() if key not in {theirs for theirs, _, _ in SAMPLING}}
    wanted = {theirs: fields[ours] for theirs, ours, _ in FIELDS} | {"do_sample": samples}
    usual = {theirs: default for theirs, _, default in (*FIELDS, *SAMPLING)}
    if samples:
        wanted |= {theirs: OFF[theirs] if fields[ours] is None else fields[ours] for theirs, ours, _ in SAMPLING}
    for theirs, value in wanted.items():
        if value != _given(settings, theirs, usual[theirs]):
            settings[theirs] = value
    is_encoder_decoder = bool(config.get("is_encoder_decoder"))
    stays_silent = not is_encoder_decoder or (bool(origin) and OWN not in config)  # a published model's file
    return _with_lengths(settings, fields, is_encoder_decoder, stays_silent)


def _with_lengths(
    settings: dict[str, Any], fields: Mapping[str, Any], is_encoder_decoder: bool, stays_silent: bool
) -> dict[str, Any]:
    """Return the settings with the bounds of new tokens in `fields`; equal bounds stay as they are. A key that exists is
    changed. Otherwise, as in transformers' own files, an encoder–decoder's bound is that of its whole sequence, which is
    one token longer; a decoder's bound is stored under `OWN`."""
    own = dict(settings.pop(OWN, None) or {})
    bounds = {"max_new_tokens": None, "min_new_tokens": 0, **_lengths({**settings, **own}, is_encoder_decoder)}
    for new, whole in (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length")):
        if bounds[new] == fields[new] or (stays_silent and bounds[new] is None and fields[new] == USUAL_LENGTH):
            continue
        settings.pop(whole, None)  # of both, the library would take the stricter
        if settings.get(new) is not None:
            settings[new] = fields[new]
        elif is_encoder_decoder:
            settings[whole] = fields[new] + 1
        else:
            own[new] = fields[new]
    return {**settings, **({OWN: own} if own else {})}


def _token(both: Config, key: str) -> int | None:
    """A token's id, the first if there are several; a negative one is none."""
    value = both.get(key)
    value = next(iter(value), None) if isinstance(value, list) else value
    return None if value is None or value < 0 else int(value)


def _check_built(generation: Config) -> None:
    unbuilt = {**UNBUILT, **(UNBUILT_SAMPLING if generation.get("do_sample") else {})}
    for key, neutral in unbuilt.items():
        value = generation.get(key)
        if value is not None and value != neutral:
            raise ValueError(
                f"the generation setting {key}={brief(value)} is not built here; remove it, or make it {brief(neutral)}"
            )


def _given(config: Config, key: str, default: Any) -> Any:
    value = config.get(key)
    return default if value is None else value
