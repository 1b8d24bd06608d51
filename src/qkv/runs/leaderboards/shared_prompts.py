"""The log-likelihood of several continuations of each prompt, which is read once for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.layout import Layout
from ...generation.log_likelihood import LOGITS, Scorer, Scores, score, scores_of
from ...generation.model_interface import check_predicts, evaluating
from ...generation.prompts import marks_prompts, padded

SLOTS = 1 << 14  # the most tokens of a batch, padding included


class _Question(NamedTuple):
    prompt: tuple[int, ...]
    targets: list[tuple[int, ...]]  # all different


def score_continuations(model: Scorer, prompts: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Scores:
    """`score(model, prompts, targets)` up to rounding, in less time if targets share a prompt, as the answers to a
    multiple-choice question do.

    Each prompt is read once, and its keys and values are continued by all targets. Encoder–decoders and models that mark
    prompts (prefix language models) read every pair by itself. Raises ValueError as `score` does.
    """
    check_predicts(model)
    if len(prompts) != len(targets):
        raise ValueError(
            f"there are {len(prompts)} prompts and {len(targets)} targets; give one target for each prompt"
        )
    if model.is_encoder_decoder or marks_prompts(model) or not all(map(len, prompts)):
        return score(model, prompts, targets)
    _check(model, prompts, targets)
    pairs = [(tuple(prompt), tuple(target)) for prompt, target in zip(prompts, targets, strict=True)]
    asked: dict[tuple[int, ...], dict[tuple[int, ...], None]] = {}
    for prompt, target in pairs:
        asked.setdefault(prompt, {})[target] = None
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[list[float], list[bool]]] = {}
    with evaluating(model), torch.no_grad():
        for batch in _batches([_Question(prompt, list(each)) for prompt, each in asked.items()], model.vocab_size):
            scores = _score_batch(model, batch)
            places = ((one.prompt, target) for one in batch for target in one.targets)
            for place, values, likeliest in zip(places, scores.log_probs, scores.likeliest, strict=True):
                found[place] = values, likeliest
    return Scores([found[pair][0] for pair in pairs], [found[pair][1] for pair in pairs])


def _check(model: Scorer, prompts: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> None:
    for i, (prompt, target) in enumerate(zip(prompts, targets, strict=True)):
        outside = next((token for token in (*prompt, *target) if not 0 <= token < model.vocab_size), None)
        if outside is not None:
            raise ValueError(f"row {i} holds token {outside}; the model's vocabulary is 0 … {model.vocab_size - 1}")
        read = len(prompt) + max(len(target) - 1, 0)
        if model.max_positions is not None and read > model.max_positions:
            raise ValueError(f"row {i} has {read} tokens to read; the model's context is {model.max_positions}")


def _batches(questions: list[_Question], vocab_size: int) -> Iterator[list[_Question]]:
    """Questions of similar lengths, the longest first. The limit of a batch is its tokens and its logits."""
    batch: list[_Question] = []
    longest = rows = width = 0
    for one in sorted(questions, key=lambda one: -len(one.prompt)):
        more, wide = rows + len(one.targets), max(width, max(map(len, one.targets)))
        full = more * (max(longest, len(one.prompt)) + wide) > SLOTS or more * wide > LOGITS // vocab_size
        if batch and full:
            yield batch
            batch, longest, more, wide = [], 0, len(one.targets), max(map(len, one.targets))
        batch.append(one)
        longest, rows, width = max(longest, len(one.prompt)), more, wide
    if batch:
        yield batch


def _score_batch(model: Any, batch: list[_Question]) -> Scores:
    """Read the prompts, and continue each by its targets."""
    lengths = [len(one.prompt) for one in batch]
    ids = torch.zeros(len(batch), max(lengths), dtype=torch.int64)
    for row, one in zip(ids, batch, strict=True):
        row[len(row) - len(one.prompt) :] = torch.tensor(one.prompt)
    targets = [target for one in batch for target in one.targets]
    counts = torch.tensor([len(one.targets) for one in batch])
    cache = model.start(len(batch), capacity=max(lengths) + max(map(len, targets)))
    layout = Layout.from_lengths(lengths, side="left", device=model.device)
    rows = torch.arange(len(batch)).repeat_interleave(counts).to(model.device)
    first = model.step(ids.to(model.device), cache, layout)[rows]  # of each target's first token
    scored = [i for i, target in enumerate(targets) if target]
    begin = torch.tensor([[targets[i][0]] for i in scored], device=model.device)
    scores = scores_of(first[scored][:, None], begin, [1] * len(scored))
    log_probs: list[list[float]] = [[] for _ in targets]
    likeliest: list[list[bool]] = [[] for _ in targets]
    for i, values, flags in zip(scored, scores.log_probs, scores.likeliest, strict=True):
        log_probs[i], likeliest[i] = values, flags
    longer = [i for i in scored if len(targets[i]) > 1]
    if longer:
        more = _continued(model, cache, rows[longer], [targets[i] for i in longer])
        for i, values, flags in zip(longer, more.log_probs, more.likeliest, strict=True):
            log_probs[i], likeliest[i] = log_probs[i] + values, likeliest[i] + flags
    return Scores(log_probs, likeliest)


def _continued(model: Any, cache: Any, rows: Tensor, targets: list[tuple[int, ...]]) -> Scores:
    """The scores of all tokens but the first of targets that continue rows of a cache."""
    cache.reorder(rows)
    ids, _ = padded(targets)
    ids = ids.to(model.device)
    fed = [len(target) - 1 for target in targets]
    logits = model.step(ids[:, :-1], cache, cache.continued(fed, model.device), all_positions=True)
    return scores_of(logits, ids[:, 1:], fed)
