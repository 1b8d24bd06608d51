"""tiktoken files: byte-level BPE as a list of ranked byte strings, one per line, `base64 rank`.

Neighboring pieces whose concatenation has the lowest rank are merged first; a piece's rank is its id. A file doesn't contain
the regular expression that cuts text into words: for OpenAI's and Qwen's files it is known from the file's name; all others
take GPT-4's, as in `transformers` (Llama 3 uses it, too).
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from ..pipelines import byte_symbols
from .vocab_files import LARGEST_FILE, QWEN2_WORDS

SUFFIX = ".tiktoken"
NO_PIECE = b"="  # placeholder in Whisper's file for an id without a piece
GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4_WORDS = QWEN2_WORDS.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_BIG, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_BIG}*{_SMALL}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_BIG}+{_SMALL}*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = {
    **dict.fromkeys(("gpt2", "multilingual", "r50k_base", "p50k_base"), GPT2_WORDS),  # the first two are Whisper's
    "qwen": QWEN2_WORDS,
    "o200k_base": GPT4O_WORDS,
}


def read(path: Path) -> tokenizers.Tokenizer:
    """Read a tiktoken file as a tokenizer without control tokens. Raises ValueError naming the line of an error."""
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"it has {path.stat().st_size:,} bytes; the limit for a vocabulary is {LARGEST_FILE:,}")
    ranks = parse(path.read_bytes())
    raw = tokenizers.Tokenizer(models.BPE(*vocabulary_of(ranks), ignore_merges=True))
    cut = pre_tokenizers.Split(Regex(WORDS.get(path.stem, GPT4_WORDS)), "isolated")
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    raw.decoder = decoders.ByteLevel()
    return raw


def parse(data: bytes) -> dict[bytes, int]:
    """Parse pieces and their ranks. Raises ValueError unless all 256 bytes are among them."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line:
            continue
        try:
            piece, rank = line.split()
            ranks[b"" if piece == NO_PIECE else base64.b64decode(piece, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise ValueError(f"line {number} should be a piece in base64 and its rank, not {line[:60]!r}") from None
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise ValueError("it lacks some of the 256 bytes, so not every text could be encoded")
    if len(set(ranks.values())) < len(ranks) or min(ranks.values()) < 0:
        raise ValueError("it has a rank below 0, or the same rank for several pieces")
    return ranks


def vocabulary_of(ranks: dict[bytes, int]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the vocabulary and the merges: every way to cut a piece into two pieces is a merge with the piece's rank."""
    symbols = byte_symbols()
    names = {piece: "".join(symbols[byte] for byte in piece) for piece in ranks}
    merges: list[tuple[str, str]] = []
    for piece in sorted(ranks, key=ranks.__getitem__):
        ways = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ranks and piece[i:] in ranks]
        ways.sort(key=lambda way: (ranks[way[0]], ranks[way[1]]))
        merges += [(names[left], names[right]) for left, right in ways]
    return {names[piece]: rank for piece, rank in ranks.items()}, merges
