"""The log-likelihood of given outputs, token by token, by teacher forcing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..core.layout import Layout
from ..core.several import worded
from .model_interface import DecodingModel, check_predicts, evaluating
from .prompts import length_groups, padded, with_prompts

LOGITS = 2**26  # the most logits of one forward pass; more rows are scored in several


class Scorer(DecodingModel, Protocol):
    """A decoder that also has a forward pass over whole sequences."""

    def __call__(
        self,
        ids: Tensor,
        target: Tensor | None = None,
        *,
        layout: Layout | None = None,
        target_layout: Layout | None = None,
    ) -> Tensor: ...


@dataclass(frozen=True)
class Scores:
    """log p of every token of every output, in nats.

    likeliest: whether each token is the likeliest one in its place, which greedy decoding takes.
    """

    log_probs: list[list[float]]
    likeliest: list[list[bool]] = field(default_factory=list)

    @property
    def totals(self) -> list[float]:
        """Each output's log-likelihood."""
        return [math.fsum(row) for row in self.log_probs]

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood of all tokens; NaN if there are none."""
        count = sum(len(row) for row in self.log_probs)
        from ..core.metrics.text import perplexity

        return perplexity(-math.fsum(self.totals), count)


@worded
def score(
    model: Scorer,
    ids: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]] | None = None,
    *,
    bos_id: int | None = None,
) -> Scores:
    """Return log p(target | ids) for rows of any lengths. The other rows of a batch do not change a result.

    Encoder–decoder: `ids` are sources, `targets` the outputs (with their end-of-sequence token, if it is to count), and
    the decoder reads `bos_id` and the target. Decoder-only: `targets` continue `ids`; without targets every token of `ids`
    is scored given those before it, the first given `bos_id`, or not at all without one.
    Raises ValueError for a model without a language-model head, if there is not one target for each
    row, and for a row with nothing to condition on.
    """
    check_predicts(model)
    if targets is not None and len(targets) != len(ids):
        raise ValueError(
            f"inputs and targets differ in number ({len(ids)} and {len(targets)}); give one target for each input"
        )
    rows = [_row(model, i, ids, targets, bos_id) for i in range(len(ids))]
    result = Scores([[] for _ in rows], [[] for _ in rows])
    with evaluating(model):
        scored = [i for i, row in enumerate(rows) if len(row.fed) > 1]
        for places in length_groups([len(rows[i].fed) for i in scored], LOGITS // model.vocab_size):
            group = [scored[place] for place in places]
            sources = [ids[i] for i in group] if model.is_encoder_decoder else None
            scores = _scores(model, sources, [rows[i] for i in group])
            for i, values, likeliest in zip(group, scores.log_probs, scores.likeliest, strict=True):
                result.log_probs[i], result.likeliest[i] = values[rows[i].start :], likeliest[rows[i].start :]
    return result


@dataclass(frozen=True)
class _Row:
    fed: list[int]  # the decoder's tokens; each but the first is predicted from those before it
    start: int  # the index of the first prediction that counts
    prompt: int  # how many of them are the prompt


def _row(
    model: Scorer, i: int, ids: Sequence[Sequence[int]], targets: Sequence[Sequence[int]] | None, bos_id: int | None
) -> _Row:
    """The decoder's tokens for row i. Raises ValueError if the model can't read them."""
    begin = [] if bos_id is None else [bos_id]
    if model.is_encoder_decoder:
        if targets is None or bos_id is None:
            raise ValueError("an encoder–decoder scores targets, and its decoder starts from bos_id; give both")
        row = _Row([*begin, *targets[i]], 0, len(begin))
    elif targets is None:
        row = _Row([*begin, *ids[i]], 0, 0)
    else:
        prompt = list(ids[i]) or begin
        if not prompt and targets[i]:
            raise ValueError(f"row {i} has an empty prompt and there is no bos_id to start from; give either")
        row = _Row([*prompt, *targets[i]], max(len(prompt) - 1, 0), len(prompt))
    outside = [token for token in row.fed if not 0 <= token < model.vocab_size]
    if outside:
        raise ValueError(f"row {i} holds token {outside[0]}; the model's vocabulary is 0 … {model.vocab_size - 1}")
    if model.max_positions is not None and len(row.fed) - 1 > model.max_positions:
        raise ValueError(f"row {i} has {len(row.fed) - 1} tokens to read; the model's context is {model.max_positions}")
    return row


def _scores(model: Scorer, sources: Sequence[Sequence[int]] | None, rows: Sequence[_Row]) -> Scores:
    """Score the tokens of each row after its first, from one forward pass."""
    ids, _ = padded([row.fed for row in rows])
    ids = ids.to(model.device)
    lengths = [len(row.fed) - 1 for row in rows]
    layout = Layout.from_lengths(lengths, device=model.device)
    layout = with_prompts(model, layout, [row.prompt for row in rows])  # as in `generate`
    if sources is None:
        logits = model(ids[:, :-1], layout=layout)
    else:
        source, source_layout = padded(sources)
        source, source_layout = source.to(model.device), source_layout.to(model.device)
        logits = model(source, ids[:, :-1], layout=source_layout, target_layout=layout)
    return scores_of(logits, ids[:, 1:], lengths)


def scores_of(logits: Float[Tensor, "B T V"], ids: Int[Tensor, "B T"], lengths: Sequence[int]) -> Scores:
    """The scores of the first tokens of each row, so many as `lengths` says."""
    logits = logits.float()
    chosen = logits.gather(-1, ids[..., None]).squeeze(-1) - torch.logsumexp(logits, -1)
    likeliest = logits.argmax(-1) == ids
    rows = zip(chosen.tolist(), likeliest.tolist(), lengths, strict=True)
    parts = [(values[:n], flags[:n]) for values, flags, n in rows]
    return Scores([values for values, _ in parts], [flags for _, flags in parts])
