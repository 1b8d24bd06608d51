"""Helpers for pipelines of the `tokenizers` library: byte symbols, word counts, and keeping control tokens out of text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The tokens of byte fallback, SentencePiece's names."""

CONTINUES = "##"  # before WordPiece's tokens inside words
LONGEST_WORD = 100  # characters; longer words are unknown to a WordPiece model, so training ignores them


def byte_symbols() -> list[str]:
    """The visible characters that byte-level models write for the bytes 0 to 255 (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def any_of(markers: Iterable[str]) -> re.Pattern[str]:
    """Matches a marker, of several at one place the longest, as the library does; nothing when there are none."""
    return re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))) or "(?!)")


def close_holes(raw: tokenizers.Tokenizer, controls: Iterable[str]) -> tokenizers.Tokenizer:
    """Make sure that no text becomes a control token, or a byte of byte fallback, because it is spelled like one.

    The library keeps control tokens in the vocabulary, where a `<s>` in the text meets them: as a word, as a piece, as
    the product of merges. If neither the pre-tokenizer nor a lack of merges rules that out, such names are cut before
    their last character.
    """
    between = raw.pre_tokenizer
    byte = [BYTES[-1]] if raw.token_to_id(BYTES[-1]) is not None else []
    names = [name for name in [*controls, *byte] if len(name) > 1]
    if not names or (between is not None and all(len(between.pre_tokenize_str(name)) > 1 for name in names)):
        return raw
    if isinstance(raw.model, models.BPE) and not _merged_into(contents(raw.model), {*names, *(BYTES if byte else ())}):
        return raw
    begun = [re.escape(name[:-1]) + "(?=" + re.escape(name[-1]) + ")" for name in names if name not in byte]
    cut = pre_tokenizers.Split(
        Regex("|".join([*begun, *["<0x[0-9A-F]{2}(?=>)" for _ in byte]])), "merged_with_previous"
    )
    raw.pre_tokenizer = cut if between is None else pre_tokenizers.Sequence([between, cut])
    return raw


def _merged_into(model: dict[str, Any], names: set[str]) -> bool:
    """Whether a BPE model can make one of the names out of characters."""
    prefix = model["continuing_subword_prefix"] or ""
    merged = (left + right.removeprefix(prefix) for left, right in model["merges"])
    return model["ignore_merges"] or not names.isdisjoint(merged)


def count_words(texts: Iterable[str], pipeline: tokenizers.Tokenizer) -> Counter[str]:
    """The words of a corpus as a pipeline cuts them: what the merging trainers count."""
    counts = Counter[str]()
    for text in normalized(texts, pipeline):
        counts.update(word for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(text))
    return counts


def normalized(texts: Iterable[str], pipeline: tokenizers.Tokenizer) -> Iterable[str]:
    return map(pipeline.normalizer.normalize_str, texts) if pipeline.normalizer else texts


def count_metaspace_words(texts: Iterable[str], pipeline: tokenizers.Tokenizer, prefix_space: bool) -> Counter[str]:
    """Return the same as `count_words`, for pipelines whose pre-tokenizer starts with Metaspace.

    It splits texts at spaces and passes only distinct words to the pre-tokenizer, which is faster.
    """
    first, spaced = Counter[str](), Counter[str]()
    for text in normalized(texts, pipeline):
        head, *rest = text.replace("▁", " ").split(" ")
        if head:
            (spaced if prefix_space else first)[head] += 1
        spaced.update(rest)
    counts = first + Counter({f"▁{word}": count for word, count in spaced.items()})
    if isinstance(pipeline.pre_tokenizer, pre_tokenizers.Metaspace):
        return counts
    cut = Counter[str]()
    for word, count in counts.items():
        for part, _ in pipeline.pre_tokenizer.pre_tokenize_str(word):
            cut[part] += count
    return cut


def contents(model: models.Model) -> dict[str, Any]:
    return json.loads(model.__getstate__())
