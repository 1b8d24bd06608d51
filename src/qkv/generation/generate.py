"""`generate`: continue prompts by greedy decoding, sampling or beam search."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Unpack

import torch
from torch import Tensor

from ..core.layout import Layout
from ..core.several import worded
from ..nn.models.joint import MediaInputs
from .beam_search import beam_search
from .greedy_search import Stream, search
from .logits_processors import Processor, processors_for
from .model_interface import DecodingModel, check_predicts, evaluating
from .prompts import Ids, Prompts, prepare
from .result import Generated, Hypothesis
from .sampling import row_seed
from .settings import Generation, GenerationOptions
from .speculation import check_draft
from .stopping import SearchOptions, Stop


@worded
def generate(
    model: DecodingModel,
    ids: Ids,
    *,
    layout: Layout | None = None,
    attention_mask: Tensor | None = None,
    target: Ids | None = None,
    target_layout: Layout | None = None,
    media: MediaInputs | None = None,
    settings: Generation | None = None,
    bos_id: int | None = None,
    eos_id: int | Sequence[int] | None = None,
    stop: Stop | None = None,
    stream: Stream | None = None,
    processors: Sequence[Processor] = (),
    seeds: Sequence[int] | None = None,
    scores: bool = False,
    draft: DecodingModel | None = None,
    **options: Unpack[GenerationOptions],
) -> Generated:
    """Continue every prompt. The other prompts of a batch do not change a result.

    ids:       (B, T) prompts, padded on either side as `layout` or `attention_mask` says, or a list of rows of any
               lengths. For an encoder–decoder this is the source, which may be pixels (B, C, H, W) where its encoder
               reads patches, and the decoder starts from `target` or `bos_id`.
    media:     pictures, sounds … by name, in the order of their placeholder tokens in the prompts, row by row.
    settings:  a `Generation`; `options` replace its fields by name (`num_beams=4`).
    eos_id:    the token, or tokens, that end a sequence. It may be the padding token too: the layout marks padding.
    stop:      called with a row's new tokens; True ends the row there.
    stream:    called with (prompt · num_samples + sample, token) as tokens come; not with beams.
    processors: more functions of (ids so far, logits), applied after the settings' processors and before sampling's.
    seeds:     one per prompt, so its sample depends neither on the batch nor on its place there; by default
               from `settings.seed` and the prompt's number (see `row_seed`).
    draft:     a smaller model with the same vocabulary that proposes tokens (`speculate="draft"`, the default with it).
    scores:    also return the tokens' log-probabilities and the sequences' scores.

    Raises ValueError for a model without a language-model head, an unknown option or one out of range, a
    prompt that leaves no room in the model's context,
    and an empty prompt without `bos_id`. A continuation that reaches the end of the context ends there, and `notes` says so.
    """
    settings = Generation(**options) if settings is None else settings.replace(options)
    if draft is not None and settings.speculate is None:
        settings = settings.replace(speculate="draft")
    check_draft(settings.speculate, draft)
    check_predicts(model)
    if draft is not None:
        check_predicts(draft)
    eos = _eos(eos_id, model.vocab_size)
    if bos_id is not None and not 0 <= bos_id < model.vocab_size:
        raise ValueError(f"bos_id {bos_id} is not in the model's vocabulary of {model.vocab_size}")
    if stream is not None and settings.num_beams > 1:
        raise ValueError("a beam search knows its tokens only at its end and can't stream them; set num_beams to 1")
    with evaluating(model), nullcontext() if draft is None else evaluating(draft):
        prompts = prepare(
            model,
            ids,
            layout=layout,
            attention_mask=attention_mask,
            target=target,
            target_layout=target_layout,
            bos_id=bos_id,
            max_new_tokens=settings.max_new_tokens,
            cache=settings.cache,
            media=media,
        )
        chain = processors_for(settings, sorted(eos), prompts.ids.shape[1], processors)
        rules = SearchOptions(settings, chain, eos, stop, scores)
        if settings.num_beams > 1:
            hypotheses = beam_search(model, prompts, rules)
        else:
            row_seeds = _seeds(seeds, settings, len(prompts))
            if settings.speculate is None:
                hypotheses = search(model, prompts, rules, seeds=row_seeds, stream=stream)
            else:
                from .speculative.start import speculative_search

                hypotheses = speculative_search(model, prompts, rules, draft=draft, seeds=row_seeds, stream=stream)
    return _result(hypotheses, prompts, rules)


def _eos(eos_id: int | Sequence[int] | None, vocab_size: int) -> frozenset[int]:
    eos = frozenset([] if eos_id is None else [eos_id] if isinstance(eos_id, int) else eos_id)
    if eos and not 0 <= min(eos) <= max(eos) < vocab_size:
        raise ValueError(f"eos_id {sorted(eos)} is not in the model's vocabulary of {vocab_size}")
    return eos


def _seeds(seeds: Sequence[int] | None, settings: Generation, count: int) -> Sequence[int]:
    if not settings.samples:
        return ()
    if seeds is None:
        seed = settings.seed if settings.seed is not None else int(torch.randint(2**62, ()))
        return [row_seed(seed, row) for row in range(count)]
    if len(seeds) != count:
        raise ValueError(f"there are {len(seeds)} seeds for {count} prompts; give one for each")
    return seeds


def _result(hypotheses: list[list[Hypothesis]], prompts: Prompts, rules: SearchOptions) -> Generated:
    settings = rules.settings
    sequences = [[h.tokens for h in row] for row in hypotheses]
    reasons = [[h.reason for h in row] for row in hypotheses]
    notes = []
    for i, limit in enumerate(prompts.limits):
        if limit < settings.max_new_tokens and "length" in reasons[i]:
            tokens = "token" if limit == 1 else "tokens"
            notes.append(
                f"prompt {i}: the model's context ended after {limit} new {tokens}, "
                f"before max_new_tokens ({settings.max_new_tokens})"
            )
        count, missing = len(sequences[i]), sequences[i].count([])
        if missing:
            empty = "continuation is" if count == 1 else "continuations are"
            notes.append(f"prompt {i}: {missing} of {count} {empty} empty: no more are possible")
    return Generated(
        prompts=prompts.rows,
        sequences=sequences,
        reasons=reasons,
        scores=[[h.score for h in row] for row in hypotheses] if rules.log_probs or settings.num_beams > 1 else None,
        log_probs=[[h.log_probs for h in row] for row in hypotheses] if rules.log_probs else None,
        acceptance=None if settings.speculate is None else [[h.acceptance for h in row] for row in hypotheses],
        notes=tuple(notes),
    )
