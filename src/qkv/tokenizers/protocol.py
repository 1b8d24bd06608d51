"""What the rest of the library needs of a tokenizer: the `Encoder` protocol, and the special tokens around a pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Encoder(Protocol):
    """What is needed of a tokenizer. `encode_batch` adds no token of its own.

    One with a `dropout` above 0 also has `sample(texts, seeds)`: ids by chance, the same for the same seed, which
    training reads in place of the one encoding that `encode_batch` gives. One with a chat template has it as `chat` (see
    `Conversations`); that of a loaded encoder–decoder says by its `frame` what stands around texts.
    """

    @property
    def pad_id(self) -> int | None: ...
    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...

    def encode_batch(self, texts: list[str], /) -> Sequence[Sequence[int]]: ...

    def __hash__(self) -> int: ...


class Frame(NamedTuple):
    """What stands around the texts of an encoder–decoder.

    start:         the token that its decoder begins with.
    before, after: the tokens around a source, and around a target.
    """

    start: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
