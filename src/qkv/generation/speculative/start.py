"""`speculative_search`: check that a model can speculate, make the proposer, and continue the prompts."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from ...nn.kv_cache.kinds import CacheKind, FullCache
from ..greedy_search import Stream, scored
from ..model_interface import DecodingModel, ParallelDecoder, RewindableCache, settled
from ..prompts import Prompts
from ..result import Hypothesis
from ..sampling import row_seed
from ..speculation import DraftModel, EarlyExit, PromptLookup
from ..stopping import SearchOptions
from .draft_model import DraftProposer
from .early_exit import EarlyExitProposer
from .lookup import LookupProposer
from .proposals import Proposer
from .rows import Continuation, Processed
from .search import SpeculativeSearch
from .verification import Randomness


def speculative_search(
    model: DecodingModel,
    prompts: Prompts,
    rules: SearchOptions,
    *,
    draft: DecodingModel | None = None,
    seeds: Sequence[int] = (),
    stream: Stream | None = None,
) -> list[list[Hypothesis]]:
    """Continue every prompt `num_samples` times, with the speculation of the settings.

    Raises ValueError for a model or a draft that can't speculate.
    """
    n = rules.settings.num_samples
    verifier = _parallel(model)
    cache = _start(verifier, prompts)
    random = None
    if rules.settings.samples:
        random = Randomness([row_seed(seed, i) for seed in seeds for i in range(n)], model.device)
    processed = Processed(rules.processors, prompts, n)
    proposer = _proposer(verifier, cache, prompts, rules, draft, processed, random)
    logits = prompts.read(verifier, cache)
    rows = [Continuation(i, prompts.rows[i // n], prompts.limits[i // n]) for i in range(len(prompts) * n)]
    if n > 1:
        cache.reorder(_repeated(prompts, n))
        logits = logits.repeat_interleave(n, 0)
    search = SpeculativeSearch(verifier, cache, rows, proposer, rules, processed, random)
    with settled(cache), settled(getattr(proposer, "cache", cache)):
        hypotheses = search.run(logits, stream)
    return scored(hypotheses, rules.settings)


def _proposer(
    model: ParallelDecoder,
    cache: Any,
    prompts: Prompts,
    rules: SearchOptions,
    draft: DecodingModel | None,
    processed: Processed,
    random: Randomness | None,
) -> Proposer:
    """Make the proposer that the settings ask for. Raises ValueError if the draft does not fit the model."""
    kind, n = rules.settings.speculate, rules.settings.num_samples
    assert kind is not None
    if isinstance(kind, PromptLookup):
        return LookupProposer(kind, model.vocab_size, _sources(model, prompts, n))
    if isinstance(kind, EarlyExit):
        return EarlyExitProposer(kind, model, cache, processed, random, n)
    assert isinstance(kind, DraftModel) and draft is not None
    _check_draft(model, draft, prompts)
    drafting = _parallel(draft)
    drafts = _start(drafting, prompts)
    prompts.read(drafting, drafts)
    if n > 1:
        drafts.reorder(_repeated(prompts, n))
    return DraftProposer(kind, drafting, drafts, processed, random)


def _parallel(model: DecodingModel) -> ParallelDecoder:
    """The model, if one step can give the logits of several tokens."""
    if "all_positions" not in inspect.signature(model.step).parameters:
        raise ValueError(
            f"speculate checks several tokens in one step, and the step of {type(model).__name__} has no parameter "
            "all_positions; leave speculate out"
        )
    return cast(ParallelDecoder, model)


def _start(model: ParallelDecoder, prompts: Prompts) -> RewindableCache:
    """An empty cache from which tokens can be removed. Raises ValueError if the model has none."""
    cache: Any = replace(prompts, cache=_rewindable(model, prompts.cache)).start(model)
    try:
        cache.check_rewind_rows()
    except ValueError as error:
        raise ValueError(
            f"speculate removes rejected tokens from the cache, and {error}; leave speculate out"
        ) from None
    except AttributeError:
        raise ValueError(
            f"speculate removes rejected tokens from the cache, and {type(cache).__name__} has no rewind_rows; leave "
            "speculate out"
        ) from None
    return cache


def _rewindable(model: DecodingModel, cache: CacheKind | None) -> CacheKind | None:
    """The same kind of cache without ring buffers, which lose tokens when others are added."""
    if isinstance(cache, FullCache | None) and "cache" in inspect.signature(model.start).parameters:
        return FullCache(ring=False)
    return cache


def _repeated(prompts: Prompts, n: int) -> torch.Tensor:
    return torch.arange(len(prompts), device=prompts.ids.device).repeat_interleave(n)


def _sources(model: DecodingModel, prompts: Prompts, n: int) -> list[list[int]] | None:
    """The sources of an encoder–decoder, for each row, if they are tokens of the decoder's vocabulary."""
    source = prompts.source
    if source is None or source.is_floating_point() or _source_vocabulary(model) != model.vocab_size:
        return None
    valid = [True] * source.shape[1]
    masks = [valid] * len(prompts) if prompts.source_layout is None else prompts.source_layout.valid.tolist()
    masks = masks * len(prompts) if len(masks) == 1 else masks
    rows = [
        [token for token, real in zip(*pair, strict=True) if real] for pair in zip(source.tolist(), masks, strict=True)
    ]
    return [row for row in rows for _ in range(n)]


def _source_vocabulary(model: DecodingModel) -> int:
    spec = getattr(model, "spec", None)
    return int(getattr(spec, "source_vocabulary", model.vocab_size))


def _check_draft(model: DecodingModel, draft: DecodingModel, prompts: Prompts) -> None:
    """Raise ValueError if a draft model's vocabulary, kind or context is not the model's."""
    if draft.vocab_size != model.vocab_size:
        raise ValueError(
            f"the draft model has a vocabulary of {draft.vocab_size} and the model one of {model.vocab_size}; give a draft "
            "with the model's tokenizer"
        )
    if draft.is_encoder_decoder != model.is_encoder_decoder:
        kinds = {True: "an encoder–decoder", False: "a decoder-only model"}
        raise ValueError(
            f"the draft is {kinds[draft.is_encoder_decoder]} and the model {kinds[model.is_encoder_decoder]}; give a draft "
            "of the same kind"
        )
    if model.is_encoder_decoder and _source_vocabulary(draft) != _source_vocabulary(model):
        raise ValueError(
            f"the draft model reads sources of a vocabulary of {_source_vocabulary(draft)} and the model of one of "
            f"{_source_vocabulary(model)}; give a draft with the model's tokenizers"
        )
    longest = max(map(len, prompts.rows))
    if draft.max_positions is not None and longest > draft.max_positions:
        raise ValueError(
            f"a prompt has {longest} tokens, and the draft model's context is {draft.max_positions}; shorten the prompt or "
            "leave the draft out"
        )
