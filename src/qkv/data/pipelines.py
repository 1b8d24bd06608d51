"""What the kinds of tokenizer share of the `tokenizers` library's pipelines, and where that library needs help."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The tokens of byte fallback, SentencePiece's names."""


def byte_symbols() -> list[str]:
    """The visible characters that byte-level models write for the bytes 0 to 255 (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def close_holes(raw: tokenizers.Tokenizer, controls: Iterable[str]) -> tokenizers.Tokenizer:
    """See to it that no text can become a control token, or a byte of byte fallback, by being spelled like one.

    The library keeps control tokens in the vocabulary, where a `<s>` in the text meets them: as a word, as a piece, as
    the product of merges. Where a pre-tokenizer does not cut such names anyway, one is put before it that cuts after
    their first character.
    """
    between = raw.pre_tokenizer
    names = [name for name in [*controls, "<0xFF>"] if len(name) > 1]
    if between is not None and all(len(between.pre_tokenize_str(name)) > 1 for name in names):
        return raw
    spelled = [re.escape(name[0]) + "(?=" + re.escape(name[1:]) + ")" for name in names[:-1]]
    cut = pre_tokenizers.Split(Regex("|".join([*spelled, "<(?=0x[0-9A-F]{2}>)"])), "isolated")
    raw.pre_tokenizer = cut if between is None else pre_tokenizers.Sequence([cut, between])
    return raw


def count_words(texts: Iterable[str], pipeline: tokenizers.Tokenizer) -> Counter[str]:
    """The words of a corpus as a pipeline cuts them: what the merging trainers count."""
    counts = Counter[str]()
    for text in normalized(texts, pipeline):
        counts.update(word for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(text))
    return counts


def normalized(texts: Iterable[str], pipeline: tokenizers.Tokenizer) -> Iterable[str]:
    return map(pipeline.normalizer.normalize_str, texts) if pipeline.normalizer else texts


def noting(texts: Iterable[str], characters: set[str]) -> Iterator[str]:
    """The texts, and on the way the characters that a metaspace model sees in them."""
    for text in texts:
        characters.update(text.replace(" ", "▁"))
        yield text


def canonical(scored: list[list[Any]]) -> list[tuple[str, float]]:
    """Unigram pieces in an order, and with scores, that don't depend on the library's random hash order.

    Characters that earned no probability end its list, 0.0001 apart in hash order: they all get the lowest score.
    Beyond the sixth digit is the noise of summing in another order.
    """
    tail = len(scored)
    while tail > 1 and len(scored[tail - 1][0]) == 1 and scored[tail - 2][1] - scored[tail - 1][1] < 1.5e-4:
        tail -= 1
    level = [(piece, round(score, 6)) for piece, score in scored[:tail]]
    lowest = round(scored[-1][1], 6)
    return sorted(level + [(piece, lowest) for piece, _ in scored[tail:]], key=lambda item: (-item[1], item[0]))


def contents(model: models.Model) -> dict[str, Any]:
    return json.loads(model.__getstate__())
