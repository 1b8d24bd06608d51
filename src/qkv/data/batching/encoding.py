"""Tokenizes the examples of a table, with a cache, and with subword sampling in training."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..shuffle import mix
from ..source import Counts, Example, Skipped, Table
from ..tokenizers.protocol import Encoder
from .encoded import CONVERSATION, PIECES, Encoded
from .ragged import Index, Ragged
from .token_cache import TokenCache

_AT_ONCE = 1000  # texts given to the tokenizer in one call
_PART = 1 << 18  # characters of running text in one piece
_OTHER_SPLIT = ""  # the reason why an entry is no example: it belongs to another split, and isn't counted


class CharacterLimit(NamedTuple):
    """How many characters of a text are tokenized, and whether longer pairs are skipped rather than cut."""

    characters: int
    skip: bool


EncodeTexts = Callable[[list[str], Sequence[tuple[int, ...]]], Sequence[Sequence[int]]]
"""`encode(texts, keys)` gives the ids of texts. A key, integers unique to a text, seeds its subword sampling."""


def encode_function(tokenizer: Encoder, seed: int | None) -> EncodeTexts:
    """The function that tokenizes texts, with subword sampling if there is a seed. The second integer of a key is the side
    of a pair; each side is tokenized by the tokenizer's `sources` or `targets`, if it has them."""
    sides = source_and_target_tokenizer(tokenizer)

    def encode(texts: list[str], keys: Sequence[tuple[int, ...]]) -> Sequence[Sequence[int]]:
        side = sides[keys[0][1]]
        if seed is None:
            return side.encode_batch(texts)
        return side.sample(texts, [mix(seed, *key) for key in keys])

    return encode


def source_and_target_tokenizer(tokenizer: Encoder) -> tuple[Any, Any]:
    """The tokenizers of the source and of the target of a pair: not every Encoder has two."""
    return getattr(tokenizer, "sources", tokenizer), getattr(tokenizer, "targets", tokenizer)


EncodeConversation = Callable[..., tuple[list[int], list[int]]]
"""The ids of a conversation, a list of messages, perhaps with `tools`; and 1 for each id that is trained on."""


def encode_conversation_function(tokenizer: Encoder) -> EncodeConversation:
    """The function that tokenizes conversations. Raises ValueError if the tokenizer has no chat template."""
    chat: Any = getattr(tokenizer, "chat", None)  # not every Encoder has it
    if chat is None:
        raise ValueError("conversations need a tokenizer with a chat template, which this one lacks")
    return chat.row


@dataclass
class Reader:
    """Tokenizes entries of a table.

    reach:   limits the characters of pairs and conversations.
    keep:    also keep the texts.
    memory:  a token cache, if the table is the same whenever it is opened.
    stopped: called between tokenizer calls; True raises `Stopped`.
    tokenizer: for conversations; pairs and texts are tokenized by the `encode` function passed to `read`.
    """

    reach: CharacterLimit | None
    keep: bool = False
    memory: TokenCache | None = None
    stopped: Callable[[], bool] = field(default=lambda: False)
    tokenizer: Encoder | None = None

    def read(self, table: Table, indices: Index, encode: EncodeTexts, counts: Counts) -> Encoded | None:
        """The good examples among these entries, or None if there are none; the others are counted."""
        if self.memory is None:
            encoded, reasons = self._encode(table, indices, encode)
        else:
            encoded, reasons, new = self.memory.recall(indices)
            if len(new):
                fresh, more = self._encode(table, indices[new], encode)
                self.memory.learn(indices[new], fresh, more)
                reasons += more
                if fresh is not None:
                    fresh = Encoded(new[fresh.places], fresh.sides, fresh.pieces)
                    encoded = fresh if encoded is None else encoded.merged(fresh)
        tally = Counter(reason for _, reason in reasons)
        counts.read += len(indices) - tally.pop(_OTHER_SPLIT, 0)
        counts.skipped += tally
        return encoded

    def _encode(
        self, table: Table, indices: Index, encode: EncodeTexts
    ) -> tuple[Encoded | None, list[tuple[int, str]]]:
        """Good examples, and (position, reason) of the others."""
        good: list[Example] = []
        places: list[int] = []
        reasons: list[tuple[int, str]] = []
        for place, i in enumerate(indices.tolist()):
            entry = table[i]
            if isinstance(entry, dict) and self._within(entry):
                good.append(entry)
                places.append(place)
            else:
                reason = _OTHER_SPLIT if entry is None else str(entry) if isinstance(entry, Skipped) else "over-long"
                reasons.append((place, reason))
        if not good:
            return None, reasons
        if "messages" in good[0]:
            sides, kind = self._conversations(good), CONVERSATION
        else:
            count, kind = 1 if "text" in good[0] else 2, ""
            sides = tuple(self._side(good, indices[places], side, encode) for side in range(count))
        pieces = np.fromiter((PIECES.index(example.get("piece", kind)) for example in good), np.int32)
        return Encoded(np.asarray(places, np.int64), sides, pieces, tuple(good) if self.keep else ()), reasons

    def _within(self, example: Example) -> bool:
        if self.reach is not None and "messages" in example:
            return len(example["text"]) <= self.reach.characters
        if self.reach is None or not self.reach.skip or "text" in example:
            return True
        return max(len(example["source"]), len(example["target"])) <= self.reach.characters

    def _side(self, examples: list[Example], indices: Index, side: int, encode: EncodeTexts) -> Ragged:
        name = "text" if "text" in examples[0] else ("source", "target")[side]
        most = None if self.reach is None or name == "text" else self.reach.characters
        parts = []
        for at in range(0, len(examples), _AT_ONCE):
            if self.stopped():
                raise Stopped
            texts = [example[name][:most] for example in examples[at : at + _AT_ONCE]]
            parts.append(_ids(texts, [(i, side) for i in indices[at : at + _AT_ONCE].tolist()], encode))
        return Ragged.join(parts)

    def _conversations(self, examples: list[Example]) -> tuple[Ragged, ...]:
        assert self.tokenizer is not None
        encode, encoded = encode_conversation_function(self.tokenizer), []
        for example in examples:
            if self.stopped():
                raise Stopped
            try:
                tools = {"tools": json.loads(example["tools"])} if "tools" in example else {}
                encoded.append(encode(json.loads(example["messages"]), **tools))
            except ValueError as error:
                raise ValueError(f"{example['where']}: {error}") from None
        return tuple(Ragged.of(side) for side in zip(*encoded, strict=True))


class Stopped(Exception):
    """Tokenization was cancelled."""


def _ids(texts: list[str], keys: list[tuple[int, ...]], encode: EncodeTexts) -> Ragged:
    """Tokens of each text; a very long one is tokenized in parts, which bounds time and memory."""
    if max(map(len, texts)) <= _PART:
        return Ragged.of(encode(texts, keys))
    parts = [[text[at : at + _PART] for at in range(0, max(1, len(text)), _PART)] for text in texts]
    part_keys = [(*key, k) for key, text in zip(keys, parts, strict=True) for k in range(len(text))]
    encoded = Ragged.of(encode([part for text in parts for part in text], part_keys))
    first = np.cumsum([0, *map(len, parts)])[:-1]
    return Ragged.runs(encoded.flat, np.add.reduceat(encoded.lengths, first))
