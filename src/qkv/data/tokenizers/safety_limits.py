"""Safety limits on the memory and time that a tokenizer.json may use, checked before the `tokenizers` library reads it.

Forty stages that each double a text fit into a few kilobytes and would exhaust any memory, so the worst-case growth of
the stages is multiplied over the pipeline.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

MOST_GROWTH = 128  # factor by which a pipeline may lengthen a text; SentencePiece's NFKC table has 18
MOST_STAGES = 1_000
MOST_ADDED = 4_096  # tokens or characters that a pipeline may add to a text
LONGEST_AFFIX = 64  # characters of the prefix or suffix that marks pieces of a word
LONGEST_WORD = 1_000  # characters of a word that WordPiece splits, in quadratic time
LARGEST_NAMES = 8 << 20  # characters of all added tokens together
LONGEST_PIECE = 1_000  # characters of a SentencePiece

_NEVER_EMPTY = re.compile(r"(?:(?:[^\\*?|^$({\[]|\\[swdnrt]|\\[pP]\{[^{}]*\})(?:\+|\{[1-9]\d*(?:,\d*)?\})?)+")
"""Matches regular expressions that never match the empty string: without optional parts, anchors, groups and classes."""


def check(data: Mapping[str, Any]) -> None:
    """Check the content of a tokenizer.json. Raises ValueError if it could exhaust memory or time."""
    try:
        for name, step in (("normalizer", _changed), ("pre_tokenizer", _changed), ("decoder", _changed)):
            _check_product(name, data.get(name), step)
        _check_product("post_processor", data.get("post_processor"), _repeated)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_added(data.get("added_tokens"))
    model = data.get("model")
    if isinstance(model, dict):
        for field in ("continuing_subword_prefix", "end_of_word_suffix"):
            if len(_text(model.get(field))) > LONGEST_AFFIX:
                raise ValueError(f"its {field} has {len(model[field]):,} characters; the limit is {LONGEST_AFFIX}")
        longest = model.get("max_input_chars_per_word")
        if isinstance(longest, int) and longest > LONGEST_WORD:
            raise ValueError(f"its max_input_chars_per_word is {longest:,}; the limit is {LONGEST_WORD:,}")
        _check_ids(model.get("vocab"))


def check_charsmap(table: bytes) -> int:
    """Return the factor by which SentencePiece's character table can lengthen a text. Raises ValueError if it is broken.

    The table has the size of a trie, the trie, and the replacement texts, each ending in a zero byte.
    """
    size = struct.unpack("<I", table[:4])[0] if len(table) >= 4 else -1
    if size < 0 or size % 4 or size > len(table) - 4:
        raise ValueError(f"its table of characters (precompiled_charsmap) is cut off: {len(table):,} bytes")
    return max(1, *(len(text.decode("utf-8", "replace")) for text in table[4 + size :].split(b"\0")))


def _check_product(name: str, part: Any, factor: Any) -> None:
    growth, added, stages = 1.0, 0, list(_stages(part))
    if len(stages) > MOST_STAGES:
        raise ValueError(f"its {name} has {len(stages):,} stages; the limit is {MOST_STAGES:,}")
    for stage in stages:
        times, more = factor(stage)
        growth, added = growth * max(1.0, times), added + more
    if growth > MOST_GROWTH:
        raise ValueError(f"its {name} could make a text {growth:.3g} times as long; the limit is {MOST_GROWTH}")
    if added > MOST_ADDED:
        raise ValueError(f"its {name} adds {added:,} characters or tokens to a text; the limit is {MOST_ADDED:,}")


def _changed(stage: Mapping[str, Any]) -> tuple[float, int]:
    """Return the factor by which a stage can lengthen a text, and the number of characters that it adds."""
    kind = stage.get("type")
    if kind == "Replace":
        new, pattern = len(_text(stage.get("content"))), stage.get("pattern")
        pattern = pattern if isinstance(pattern, dict) else {}
        old, regex = _text(pattern.get("String")), _text(pattern.get("Regex"))
        if old:
            return new / len(old), 0
        return new + (
            not _NEVER_EMPTY.fullmatch(regex)
        ) if new else 1.0, 0  # inserted at most once before every character
    if kind == "Prepend":
        return 1.0, len(_text(stage.get("prepend")))
    if kind == "ByteLevel":
        return 4.0, 0  # one character for each byte of a character
    if kind == "Precompiled":
        return float(_table(stage.get("precompiled_charsmap"))), 0
    if kind in ("BPEDecoder", "CTC"):  # an empty text matches between all characters
        empty = [not stage.get(field, "x") for field in ("suffix", "pad_token", "word_delimiter_token")]
        return 2.0 ** sum(empty), 0
    return 1.0, len(_text(stage.get("prefix"))) + len(_text(stage.get("replacement")))


def _table(text: Any) -> int:
    try:
        return check_charsmap(base64.b64decode(_text(text), validate=True))
    except binascii.Error:
        raise ValueError("its table of characters (precompiled_charsmap) is not base64") from None


def _repeated(stage: Mapping[str, Any]) -> tuple[float, int]:
    """Return how often a post-processor repeats a text in its result, and how many tokens it adds."""
    if stage.get("type") != "TemplateProcessing":
        return 1.0, 4
    tokens = stage.get("special_tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    texts, added = 1, 0
    for way in ("single", "pair"):
        pieces = stage.get(way)
        pieces = [piece for piece in pieces if isinstance(piece, dict)] if isinstance(pieces, list) else []
        inputs = [_text(piece["Sequence"].get("id")) for piece in pieces if isinstance(piece.get("Sequence"), dict)]
        texts = max(texts, inputs.count("A"), inputs.count("B"))
        names = [piece["SpecialToken"].get("id") for piece in pieces if isinstance(piece.get("SpecialToken"), dict)]
        sizes = {name: _ids(token) for name, token in tokens.items()}
        added = max(added, sum(sizes.get(name, 0) for name in names if isinstance(name, str)))
    return float(texts), added


def _ids(token: Any) -> int:
    ids = token.get("ids") if isinstance(token, dict) else None
    return len(ids) if isinstance(ids, list) else 0


def _check_ids(vocab: Any) -> None:
    """Refuse ids that several tokens share, because the library would save only one of these tokens."""
    if not isinstance(vocab, dict):
        return
    numbers = vocab.values()
    distinct = set(numbers) if set(map(type, numbers)) <= {int} else set(map(repr, numbers))
    if len(distinct) < len(numbers):
        twice = next(number for number, count in Counter(map(repr, vocab.values())).items() if count > 1)
        raise ValueError(f"several tokens of its vocabulary have the id {twice:.20}; give each token its own id")


def _check_added(tokens: Any) -> None:
    tokens = tokens if isinstance(tokens, list) else []
    names = sum(len(_text(token.get("content"))) for token in tokens if isinstance(token, dict))
    if names > LARGEST_NAMES:
        raise ValueError(f"its added tokens have {names:,} characters; the limit is {LARGEST_NAMES:,}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _stages(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if "type" in part:
            yield part
        for value in part.values():
            yield from _stages(value)
    elif isinstance(part, list):
        for value in part:
            yield from _stages(value)
