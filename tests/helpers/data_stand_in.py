"""A tokenizer that needs no training: one token a character. Picklable, so worker processes can have it."""

from __future__ import annotations

from collections.abc import Sequence


class Characters:
    """Ids are code points plus a few special tokens; with `pad_is_eos`, padding is written as the end of sequence."""

    def __init__(self, pad_is_eos: bool = False, bos: bool = True, eos: bool = True) -> None:
        self.bos_id = 1 if bos else None
        self.eos_id = 2 if eos else None
        self.pad_id = 2 if pad_is_eos else 0
        self.longest_seen = self.texts_seen = 0

    def encode_batch(self, texts: list[str], /) -> Sequence[Sequence[int]]:
        self.longest_seen = max([self.longest_seen, *map(len, texts)])
        self.texts_seen += len(texts)
        return [[ord(character) + 10 for character in text] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(i - 10) for i in ids if i >= 10)
