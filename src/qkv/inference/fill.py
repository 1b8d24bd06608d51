"""Which tokens a masked language model puts in place of the masks in a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.long_texts import reads_unpadded
from ..tasks.framing import framed
from .classify import Rows, inputs_of
from .loaded import LoadedModel
from .text import batches
from .uses import advice, fills, kind_of, name_of


@dataclass(frozen=True)
class Candidate:
    """A token for a mask, as text, and how likely it is."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with the likeliest token in place of each mask, and of each mask, in their order, the likeliest tokens."""

    text: str
    masks: tuple[tuple[Candidate, ...], ...]


@torch.inference_mode()
def fill(run: LoadedModel, texts: Sequence[str], top_k: int = 5) -> list[Filled]:
    """What stands behind the masks of each text, `The [MASK] sat.`, each mask by itself as BERT was trained: the others stay
    hidden. Control tokens in these texts are read as such.

    Raises ValueError where the model is no masked language model, or a text has no mask.
    """
    if not fills(run):
        raise ValueError(f"{name_of(run)} is {kind_of(run)}, which fills in no masks; {advice(run)}")
    if top_k < 1:
        raise ValueError(f"top_k is a number from 1 on, not {top_k}")
    tokenizer = run.text_model.tokenizer
    rows, mask = _rows(run, texts), tokenizer.mask_id
    assert mask is not None
    for number, (ids, _) in enumerate(rows, 1):
        if mask not in ids:
            raise ValueError(f"text {number} has no mask; write {tokenizer.roles['mask']} where a token is to be found")
    made: list[Filled | None] = [None] * len(rows)
    for group in batches([len(ids) for ids, _ in rows], padded=not reads_unpadded(run.model)):
        logits = run.model(**inputs_of(run, [rows[i] for i in group]))
        for i, row in zip(group, logits, strict=True):
            read = torch.tensor(rows[i][0])
            hidden = read.eq(mask).nonzero()[:, 0]
            made[i] = _filled(run, read, hidden, row[hidden.to(row.device)].float().cpu().softmax(-1), top_k)
    return [one for one in made if one is not None]


def _rows(run: LoadedModel, texts: Sequence[str]) -> Rows:
    """Texts with what the model reads around them: on the Hub by its tokenizer's template, here as in training."""
    text_model = run.text_model
    if text_model.ids is not None:
        return list(text_model.tokenizer.with_template(texts, control=True))
    encoded = text_model.tokenizer.encode_batch(texts, control=True)
    made = [framed(text_model.tokenizer, ids) for ids in encoded]
    return [(one.ids.tolist(), one.token_types.tolist()) for one in made]


def _filled(run: LoadedModel, ids: Tensor, hidden: Tensor, shares: Tensor, top_k: int) -> Filled:
    """`shares` (masks, V) are the probabilities of all tokens; those that the tokenizer doesn't have are never named."""
    tokenizer = run.text_model.tokenizer
    best, which = shares[:, : tokenizer.vocab_size].topk(min(top_k, tokenizer.vocab_size))
    ids = ids.clone()
    ids[hidden] = which[:, 0]
    masks = [
        tuple(Candidate(tokenizer.decode([i], skip_special=False), i, share) for i, share in zip(*mask, strict=True))
        for mask in zip(which.tolist(), best.tolist(), strict=True)
    ]
    return Filled(tokenizer.decode(ids.tolist()), tuple(masks))
