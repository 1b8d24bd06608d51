"""Interfaces of tokenizers, `Encoder` and `TextDecoder`, and `PairFrame`: special tokens around texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Encoder(Protocol):
    """Interface of a tokenizer. `encode_batch` adds no special tokens.

    Some tokenizers have more: with a `dropout` above 0, `sample(texts, seeds)` returns random segmentations for training,
    the same for the same seed; with a chat template, `chat` encodes conversations (`Conversations`); and the tokenizer of
    a loaded encoder–decoder has a `frame`.
    """

    @property
    def pad_id(self) -> int | None: ...
    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...

    def encode_batch(self, texts: list[str], /) -> Sequence[Sequence[int]]: ...

    def __hash__(self) -> int: ...


class TextDecoder(Encoder, Protocol):
    """A tokenizer that also gives texts for ids, as metrics and previews need it."""

    @property
    def controls(self) -> Mapping[str, int]: ...
    @property
    def unk_id(self) -> int | None: ...
    @property
    def mask_id(self) -> int | None: ...
    @property
    def cls_id(self) -> int | None: ...
    @property
    def sep_id(self) -> int | None: ...

    def tokens(self, ids: Iterable[int], /) -> list[str]: ...
    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str: ...
    def decode_batch(self, rows: Iterable[Iterable[int]], skip_special: bool = True) -> list[str]: ...


class PairFrame(NamedTuple):
    """Special tokens around the texts of an encoder–decoder.

    start:         the decoder's first token.
    before, after: tokens before and after a source, and before and after a target.
    """

    start: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
