"""Special tokens around texts: `[CLS] a [SEP] b [SEP]`, `<s> a </s></s> b </s>`, `<s> a </s>`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..tokenizers.protocol import Encoder

Ids = Sequence[int]


class Framed(NamedTuple):
    """One text, or two, as a model reads them.

    ids, token_types: (T,) int64; the types are 0, or 1 for what belongs to the second text.
    spans: where each text stands, (start, stop): `ids[start:stop]` are its tokens.
    cut:   how many tokens of the texts there was no room for.
    """

    ids: NDArray[np.int64]
    token_types: NDArray[np.int64]
    spans: tuple[tuple[int, int], ...]
    cut: int = 0


class Around(NamedTuple):
    """The tokens before, between and after so many texts, and the type of each of those and of the texts."""

    tokens: tuple[tuple[int, ...], ...]
    types: tuple[tuple[int, ...], ...]
    of_texts: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.tokens))


def framed(
    tokenizer: Encoder,
    a: Ids,
    b: Ids | None = None,
    *,
    room: int | None = None,
    cut: Literal["longest", "first", "second"] = "longest",
) -> Framed:
    """The ids of one text or two, which came without special tokens, with what the tokenizer's model reads around them.

    That is what the tokenizer's own file says (its template); where it says nothing, the beginning and the end of a
    sequence: `<s> a </s>` and `<s> a </s> b </s>`, as far as there are such tokens.

    room: of the whole; what is too much is cut from the end of the longest text, one token after the other, or of the
          first or second alone.

    Raises ValueError where there is no room for a token of each text that is not empty, or two texts and no token to part
    them.
    """
    texts = (a,) if b is None else (a, b)
    frame = frame_of(cast("Any", tokenizer), len(texts))
    kept = _fitting([len(text) for text in texts], None if room is None else room - frame.size, cut, frame.size)
    ids, types, spans = list(frame.tokens[0]), list(frame.types[0]), []
    for text, size, kind, after, around in zip(
        texts, kept, frame.of_texts, frame.tokens[1:], frame.types[1:], strict=True
    ):
        spans.append((len(ids), len(ids) + size))
        ids += [*text[:size], *after]
        types += [*[kind] * size, *around]
    lost = sum(map(len, texts)) - sum(kept)
    return Framed(np.array(ids, np.int64), np.array(types, np.int64), tuple(spans), lost)


@lru_cache(maxsize=32)
def frame_of(tokenizer: Encoder, texts: Literal[1, 2] | int = 1) -> Around:
    """What stands around one text, or around and between two."""
    raw: Any = getattr(tokenizer, "raw", None)  # not every Encoder is the library's
    template = None if raw is None else _template(raw, texts)
    return template if template is not None and template.size else _own(tokenizer, texts)


def _template(raw: Any, texts: int) -> Around:
    """The frame in a tokenizer's file, seen from what it makes of texts."""
    made = raw.encode("a", *["a"] * (texts - 1), add_special_tokens=True)
    tokens: list[list[int]] = [[]]
    types: list[list[int]] = [[]]
    of_texts: list[int] = []
    for token, kind, text in zip(made.ids, made.type_ids, made.sequence_ids, strict=True):
        if text is None:
            tokens[-1].append(token)
            types[-1].append(kind)
        elif text == len(of_texts):  # the first token of a text
            of_texts.append(kind)
            tokens.append([])
            types.append([])
    missing = texts - len(of_texts)  # a tokenizer may have no token for an "a"
    if missing:
        return Around(((),) * (texts + 1), ((),) * (texts + 1), (0,) * texts)
    return Around(tuple(map(tuple, tokens)), tuple(map(tuple, types)), tuple(of_texts))


def _own(tokenizer: Encoder, texts: int) -> Around:
    bos, eos = (() if i is None else (i,) for i in (tokenizer.bos_id, tokenizer.eos_id))
    if texts == 2 and not eos:
        raise ValueError("two texts are parted by an end-of-sequence token, and this tokenizer has none; give it one")
    kinds = tuple(range(texts))
    return Around((bos, *(eos for _ in kinds)), ((0,) * len(bos), *((kind,) * len(eos) for kind in kinds)), kinds)


def _fitting(sizes: list[int], room: int | None, cut: str, frame: int) -> list[int]:
    """How many tokens of each text are kept."""
    over = 0 if room is None else sum(sizes) - room
    if over <= 0:
        return sizes
    kept = list(sizes)
    if cut == "longest" and len(kept) == 2:
        gap = kept[0] - kept[1]
        alone = min(over, abs(gap))  # until both are of one length
        kept[0 if gap > 0 else 1] -= alone
        kept[1] -= (over - alone + 1) // 2
        kept[0] -= (over - alone) // 2
    else:
        kept[1 if cut == "second" and len(kept) == 2 else 0] -= over
    if any(size <= 0 < given for size, given in zip(kept, sizes, strict=True)):
        raise ValueError(
            f"{sum(sizes)} tokens of text with {frame} around them don't fit {frame + (room or 0)}; give them more room"
        )
    return kept
