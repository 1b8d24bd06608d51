"""Fill masks: the likeliest tokens for each mask in a text, by a masked language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.spec import brief
from ...generation.prompts import length_groups
from ...nn.models.long_texts import reads_unpadded
from ..tasks.framing import framed
from .classify import Rows, inputs_of
from .loaded import LoadedModel
from .output import SLOTS
from .uses import advice, fills, kind_of


@dataclass(frozen=True)
class Candidate:
    """A token for a mask, as text and id, with its probability."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with the likeliest token in place of each mask, and the likeliest tokens for each mask in order."""

    text: str
    masks: tuple[tuple[Candidate, ...], ...]


@torch.inference_mode()
def fill(run: LoadedModel, texts: Sequence[str], top_k: int = 5) -> list[Filled]:
    """Predict the tokens behind the masks of each text, `The [MASK] sat.`, each mask independently, as BERT was trained.
    Control tokens in these texts are read as such.

    Raises ValueError if the model is not a masked language model, or a text has no mask.
    """
    if not fills(run):
        raise ValueError(f"{run.name} is {kind_of(run)}, which fills in no masks; {advice(run)}")
    if not isinstance(top_k, int) or top_k < 1:
        raise ValueError(f"top_k must be at least 1, not {brief(top_k)}")
    tokenizer = run.words
    rows, mask = rows_with_masks(run, texts), tokenizer.mask_id
    assert mask is not None
    for number, (row, _) in enumerate(rows, 1):
        if mask not in row:
            raise ValueError(f"text {number} has no mask; write {tokenizer.roles['mask']} in place of a token")
    filled: dict[int, Filled] = {}
    for group in length_groups([len(ids) for ids, _ in rows], SLOTS, padded=not reads_unpadded(run.model)):
        logits = run.model(**inputs_of(run, [rows[i] for i in group]))
        for i, scores in zip(group, logits, strict=True):
            ids = torch.tensor(rows[i][0])
            masked = ids.eq(mask).nonzero()[:, 0]
            filled[i] = _filled(run, ids, masked, scores[masked.to(scores.device)].float().cpu().softmax(-1), top_k)
    return [filled[i] for i in range(len(rows))]


def rows_with_masks(run: LoadedModel, texts: Sequence[str]) -> Rows:
    """Encode texts as the model was trained on them: a Hub model's by its tokenizer's template."""
    if run.ids is not None:
        return list(run.words.with_template(texts, control=True))
    encoded = run.words.encode_batch(texts, control=True)
    items = [framed(run.words, ids) for ids in encoded]
    return [(item.ids.tolist(), item.token_types.tolist()) for item in items]


def _filled(run: LoadedModel, ids: Tensor, masked: Tensor, probs: Tensor, top_k: int) -> Filled:
    """`probs` (masks, V) are the probabilities of all tokens; tokens beyond the tokenizer's vocabulary are left out."""
    tokenizer = run.words
    best, which = probs[:, : tokenizer.vocab_size].topk(min(top_k, tokenizer.vocab_size))
    ids = ids.clone()
    ids[masked] = which[:, 0]
    masks = [
        tuple(Candidate(tokenizer.decode([i], skip_special=False), i, prob) for i, prob in zip(*mask, strict=True))
        for mask in zip(which.tolist(), best.tolist(), strict=True)
    ]
    return Filled(tokenizer.decode(ids.tolist()), tuple(masks))
