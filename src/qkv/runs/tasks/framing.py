"""Special tokens around one text or two: `[CLS] a [SEP] b [SEP]`, `<s> a </s></s> b </s>`, `<s> a </s>`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ...data.tokenizers.protocol import Encoder

Ids = Sequence[int]


class Framed(NamedTuple):
    """One text or two with the special tokens around them, as a model reads them.

    ids, token_types: (T,) int64; types are 0, or 1 for the tokens of the second text.
    spans: (start, stop) of each text: `ids[start:stop]` are its tokens.
    cut:   how many tokens of the texts were cut off for lack of room.
    """

    ids: NDArray[np.int64]
    token_types: NDArray[np.int64]
    spans: tuple[tuple[int, int], ...]
    cut: int = 0


class TextFrame(NamedTuple):
    """The special tokens before, between and after texts, their token types, and the token type of each text."""

    tokens: tuple[tuple[int, ...], ...]
    types: tuple[tuple[int, ...], ...]
    text_types: tuple[int, ...]

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
    """Put special tokens around the ids of one text or two, as the tokenizer's model expects them.

    They come from the template in the tokenizer's own file. Without a template they are the tokens for the beginning
    and the end of a sequence, as far as the tokenizer has them: `<s> a </s>` and `<s> a </s> b </s>`.

    room: the most tokens of the result. Excess tokens are cut from the end of the longer text, then of both, as the
          library `tokenizers` cuts the longest first, or of the first or the second text alone.

    Raises ValueError if there is no room for a token of each text that is not empty, or no token to separate two texts.
    """
    texts = (a,) if b is None else (a, b)
    frame = frame_of(cast("Any", tokenizer), len(texts))
    sizes = _fitting([len(text) for text in texts], None if room is None else room - frame.size, cut, frame.size)
    ids, types, spans = list(frame.tokens[0]), list(frame.types[0]), []
    for text, size, kind, after, after_types in zip(
        texts, sizes, frame.text_types, frame.tokens[1:], frame.types[1:], strict=True
    ):
        spans.append((len(ids), len(ids) + size))
        ids += [*text[:size], *after]
        types += [*[kind] * size, *after_types]
    lost = sum(map(len, texts)) - sum(sizes)
    return Framed(np.array(ids, np.int64), np.array(types, np.int64), tuple(spans), lost)


@lru_cache(maxsize=32)
def frame_of(tokenizer: Encoder, texts: Literal[1, 2] | int = 1) -> TextFrame:
    """Return the special tokens around one text, or around and between two."""
    raw: Any = getattr(tokenizer, "raw", None)  # not every Encoder is the library's
    template = None if raw is None else _template(raw, texts)
    return template if template is not None and template.size else _default_frame(tokenizer, texts)


def _template(raw: Any, texts: int) -> TextFrame:
    """The frame of a tokenizer's file, recovered from an encoded text; empty if a text gives no token."""
    encoding = raw.encode("a", *["a"] * (texts - 1), add_special_tokens=True)
    tokens: list[list[int]] = [[]]
    types: list[list[int]] = [[]]
    text_types: list[int] = []
    for token, kind, text in zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True):
        if text is None:
            tokens[-1].append(token)
            types[-1].append(kind)
        elif text == len(text_types):  # the first token of a text
            text_types.append(kind)
            tokens.append([])
            types.append([])
    if len(text_types) < texts:  # a tokenizer may have no token for an "a"
        return TextFrame(((),) * (texts + 1), ((),) * (texts + 1), (0,) * texts)
    return TextFrame(tuple(map(tuple, tokens)), tuple(map(tuple, types)), tuple(text_types))


def _default_frame(tokenizer: Encoder, texts: int) -> TextFrame:
    """Beginning and end of a sequence, for a tokenizer without a template."""
    bos, eos = (() if i is None else (i,) for i in (tokenizer.bos_id, tokenizer.eos_id))
    if texts == 2 and not eos:
        raise ValueError(
            "two texts are separated by an end-of-sequence token, and this tokenizer has none; give it one as tokenizer.eos"
        )
    kinds = tuple(range(texts))
    return TextFrame((bos, *(eos for _ in kinds)), ((0,) * len(bos), *((kind,) * len(eos) for kind in kinds)), kinds)


def _fitting(sizes: list[int], room: int | None, cut: str, frame: int) -> list[int]:
    """How many tokens of each text are kept."""
    excess = 0 if room is None else sum(sizes) - room
    if excess <= 0:
        return sizes
    kept = list(sizes)
    if cut == "longest" and len(kept) == 2:
        shorter, left = int(kept[1] < kept[0]), sum(kept) - excess
        kept[shorter] = min(kept[shorter], left // 2)
        kept[1 - shorter] = left - kept[shorter]
    else:
        kept[1 if cut == "second" and len(kept) == 2 else 0] -= excess
    if any(left <= 0 < size for left, size in zip(kept, sizes, strict=True)):
        raise ValueError(
            f"{sum(sizes)} tokens of text with {frame} around them don't fit {frame + (room or 0)}; give them more room"
        )
    return kept
