"""Draft models for speculative decoding: a smaller run with the same tokenizer."""

from __future__ import annotations

from dataclasses import replace

from ...core.spec import brief
from ...data.tokenizers.tokenizer import Tokenizer
from .loaded import LoadedModel
from .text import TextModel


def with_draft(run: LoadedModel, draft: LoadedModel | None) -> TextModel:
    """Return the run's text model with a draft model. Raises ValueError, naming the difference, for another tokenizer."""
    text_model = run.text_model
    if draft is None:
        return text_model
    other = draft.text_model
    pairs = {
        "tokenizer": (text_model.tokenizer, other.tokenizer),
        "source tokenizer": (text_model.reader, other.reader),
    }
    for name, (mine, theirs) in pairs.items():
        difference = _difference(mine, theirs)
        if difference is not None:
            raise ValueError(
                f"the draft {draft.name} has another {name} than {run.name}: {difference}; give a draft with the same "
                "tokenizer"
            )
    return replace(text_model, draft=draft.model)


def _difference(mine: Tokenizer, theirs: Tokenizer) -> str | None:
    """The first difference of two vocabularies; None if they are the same."""
    if mine is theirs:
        return None
    own, other = ({i: token for token, i in t.raw.get_vocab(with_added_tokens=True).items()} for t in (mine, theirs))
    if len(own) != len(other):
        return f"its vocabulary has {len(other)} tokens, not {len(own)}"
    for i, token in sorted(own.items()):
        if other.get(i) != token:
            return f"token {i} is {brief(other.get(i))}, not {brief(token)}"
    return None
