"""A tokenizer of one token a character."""

from __future__ import annotations

from small import VOCAB


class Letters:
    """A tokenizer of one token a character; ids below 3 are pad, bos and eos."""

    pad_id, bos_id, eos_id = 0, 1, 2

    def encode_batch(self, texts: list[str], /) -> list[list[int]]:
        return [[3 + (ord(c) - ord("a")) % (VOCAB - 3) for c in text.replace(" ", "")] for text in texts]
