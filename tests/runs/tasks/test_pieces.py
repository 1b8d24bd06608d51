"""Character offsets of tokens: where tokens start and end, and the next character that is not white space."""

from __future__ import annotations

import pytest

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.tasks.pieces import pieces_of, visible

TEXT = " the cat  sat "


@pytest.mark.parametrize("kind", ["word", "bpe", "char"])
def test_tokens_cover_the_visible_characters(kind: str) -> None:
    tokenizer = train(TokenizerSpec.from_dict({"kind": kind, "vocab_size": 300}), [TEXT] * 9)
    (pieces,) = pieces_of([TEXT], tokenizer)
    assert len(pieces) == len(pieces.ids) == len(pieces.starts)
    shown = [TEXT[start:end] for start, end in zip(pieces.starts, pieces.ends, strict=True)]
    assert "".join(shown).split() == "".join(TEXT.split()).split()
    assert not any(piece.startswith(" ") for piece in shown)
    with pytest.raises(ValueError, match="need a tokenizer that says where its tokens stand"):
        pieces_of([TEXT], None)


def test_the_next_visible_character() -> None:
    assert visible(" a  b ").tolist() == [1, 1, 4, 4, 4, 6, 6]
