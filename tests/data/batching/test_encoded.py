"""Tokenized examples: taking some of them, and merging with others."""

from __future__ import annotations

import numpy as np

from qkv.data.batching.encoded import CONVERSATION, PIECES, Encoded
from qkv.data.batching.ragged import Ragged


def encoded(places: list[int], texts: list[list[int]], pieces: list[str]) -> Encoded:
    numbers = np.array([PIECES.index(piece) for piece in pieces], np.int32)
    return Encoded(np.array(places), (Ragged.of(texts),), numbers, tuple({"text": str(text)} for text in texts))


def test_pieces_say_where_a_document_begins_and_ends() -> None:
    found = encoded([0, 1, 2, 3], [[1], [2], [3], [4]], ["", "first", "middle", "last"])
    assert found.begins.tolist() == [True, True, False, False]
    assert found.ends.tolist() == [True, False, False, True]
    assert found.running and not found.conversations
    assert encoded([0], [[1]], [CONVERSATION]).conversations


def test_taken_and_merged_examples_keep_their_ids_and_texts() -> None:
    even = encoded([0, 2, 4], [[1], [2, 2], [3]], ["", "first", "last"])
    merged = even.take(np.array([0, 2])).merged(encoded([1, 3], [[5, 6], []], ["", ""]))
    assert merged.places.tolist() == [0, 1, 3, 4]
    assert [row.tolist() for row in merged.sides[0]] == [[1], [5, 6], [], [3]]
    assert [example["text"] for example in merged.examples] == ["[1]", "[5, 6]", "[]", "[3]"]
    assert [PIECES[piece] for piece in merged.pieces] == ["", "", "", "last"]
