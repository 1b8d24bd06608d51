"""Draft models for speculative decoding: a smaller run with the same tokenizer."""

from __future__ import annotations

from ...core.spec import brief
from ...data.tokenizers.tokenizer import Tokenizer
from ...nn.models.build import AnyModel
from .loaded import LoadedModel


def draft_for(run: LoadedModel, draft: LoadedModel | None) -> AnyModel | None:
    """Return the draft's model, if there is one. Raises ValueError, naming the difference, for another tokenizer."""
    if draft is None:
        return None
    pairs = {"tokenizer": (run.words, draft.words), "source tokenizer": (run.reader, draft.reader)}
    for name, (mine, theirs) in pairs.items():
        found = difference(mine, theirs)
        if found is not None:
            raise ValueError(
                f"the draft {draft.name} has another {name} than {run.name}: {found}; give a draft with the same "
                "tokenizer"
            )
    return draft.model


def difference(mine: Tokenizer, theirs: Tokenizer) -> str | None:
    """Return the first difference of two vocabularies; None if they are the same."""
    if mine is theirs:
        return None
    own, other = ({i: token for token, i in t.raw.get_vocab(with_added_tokens=True).items()} for t in (mine, theirs))
    if len(own) != len(other):
        return f"its vocabulary has {len(other)} tokens, not {len(own)}"
    for i, token in sorted(own.items()):
        if other.get(i) != token:
            return f"token {i} is {brief(other.get(i))}, not {brief(token)}"
    return None
