"""Safety limits on a tokenizer.json, checked before the `tokenizers` library reads it: memory and time that it may use.

Forty stages that each double a text fit into a few kilobytes and exhaust any memory, so the worst-case growth of each
stage is multiplied over the pipeline.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

MOST_GROWTH = 128  # how many times longer a pipeline may make a text; SentencePiece's own table of NFKC has 18
MOST_STAGES = 1_000
MOST_ADDED = 4_096  # tokens, or characters, that a pipeline puts beside a text
LONGEST_AFFIX = 64  # characters of what marks the pieces of a word
LONGEST_WORD = 1_000  # characters up to which WordPiece cuts a word, in a time that goes with their square
LARGEST_NAMES = 8 << 20  # characters of all added tokens
LONGEST_PIECE = 1_000  # characters of a SentencePiece

_NEVER_EMPTY = re.compile(r"(?:(?:[^\\*?|^$({\[]|\\[swdnrt]|\\[pP]\{[^{}]*\})(?:\+|\{[1-9]\d*(?:,\d*)?\})?)+")
"""Regular expressions that surely match a character at least: nothing optional in them, no anchors, groups or classes."""


def check(data: Mapping[str, Any]) -> None:
    """Raises ValueError in one sentence for a tokenizer.json that could exhaust memory or time."""
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
                raise ValueError(f"its {field} has {len(model[field]):,} characters; {LONGEST_AFFIX} are the most")
        longest = model.get("max_input_chars_per_word")
        if isinstance(longest, int) and longest > LONGEST_WORD:
            raise ValueError(f"its max_input_chars_per_word is {longest:,}; {LONGEST_WORD:,} is the most")
        _check_ids(model.get("vocab"))


def check_charsmap(table: bytes) -> int:
    """How many times longer SentencePiece's table of characters can make a text. Raises ValueError for one that is broken.

    It is the size of a trie, the trie, and texts that each end in a zero byte, by which the characters are replaced.
    """
    size = struct.unpack("<I", table[:4])[0] if len(table) >= 4 else -1
    if size < 0 or size % 4 or size > len(table) - 4:
        raise ValueError(f"its table of characters (precompiled_charsmap) is cut off: {len(table):,} bytes")
    return max(1, *(len(text.decode("utf-8", "replace")) for text in table[4 + size :].split(b"\0")))


def _check_product(name: str, part: Any, factor: Any) -> None:
    growth, added, stages = 1.0, 0, list(_stages(part))
    if len(stages) > MOST_STAGES:
        raise ValueError(f"its {name} has {len(stages):,} stages; {MOST_STAGES:,} are the most")
    for stage in stages:
        times, more = factor(stage)
        growth, added = growth * max(1.0, times), added + more
    if growth > MOST_GROWTH:
        raise ValueError(f"its {name} could make a text {growth:.3g} times as long; {MOST_GROWTH} is the most")
    if added > MOST_ADDED:
        raise ValueError(f"its {name} puts {added:,} characters or tokens beside a text; {MOST_ADDED:,} are the most")


def _changed(stage: Mapping[str, Any]) -> tuple[float, int]:
    """How many times longer a stage can make a text, and what it adds to it besides."""
    kind = stage.get("type")
    if kind == "Replace":
        new, pattern = len(_text(stage.get("content"))), stage.get("pattern")
        pattern = pattern if isinstance(pattern, dict) else {}
        old, regex = _text(pattern.get("String")), _text(pattern.get("Regex"))
        if old:
            return new / len(old), 0
        return new + (not _NEVER_EMPTY.fullmatch(regex)) if new else 1.0, 0  # at most once before every character
    if kind == "Prepend":
        return 1.0, len(_text(stage.get("prepend")))
    if kind == "ByteLevel":
        return 4.0, 0  # the bytes of a character, each written as one
    if kind == "Precompiled":
        return float(_table(stage.get("precompiled_charsmap"))), 0
    if kind in ("BPEDecoder", "CTC"):  # an empty text stands between all characters
        empty = [not stage.get(field, "x") for field in ("suffix", "pad_token", "word_delimiter_token")]
        return 2.0 ** sum(empty), 0
    return 1.0, len(_text(stage.get("prefix"))) + len(_text(stage.get("replacement")))


def _table(text: Any) -> int:
    try:
        return check_charsmap(base64.b64decode(_text(text), validate=True))
    except binascii.Error:
        raise ValueError("its table of characters (precompiled_charsmap) is not base64") from None


def _repeated(stage: Mapping[str, Any]) -> tuple[float, int]:
    """How often a post-processor puts a text into its result, and how many tokens it puts beside it."""
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
    """Each id is one token's: of two, the library would write down only one."""
    if isinstance(vocab, dict) and len(set(map(repr, vocab.values()))) < len(vocab):
        twice = next(number for number, count in Counter(map(repr, vocab.values())).items() if count > 1)
        raise ValueError(f"several tokens of its vocabulary have the id {twice:.20}; give each an id of its own")


def _check_added(tokens: Any) -> None:
    tokens = tokens if isinstance(tokens, list) else []
    names = sum(len(_text(token.get("content"))) for token in tokens if isinstance(token, dict))
    if names > LARGEST_NAMES:
        raise ValueError(f"its added tokens have {names:,} characters; {LARGEST_NAMES:,} are the most")


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
