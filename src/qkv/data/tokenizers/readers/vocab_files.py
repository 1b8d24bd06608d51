"""Reads vocabulary files: BERT's vocab.txt; the vocab.json and merges.txt of GPT-2, RoBERTa, CLIP and Qwen 2."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from ....core.json_files import checked
from ....core.spec import brief
from ..pipelines import CONTINUES, LONGEST_WORD
from ..tokenizer_json import ALL_ROLES
from .hub_config import IDS, HubConfig, unwritable

LARGEST_FILE = 64 << 20  # bytes
END_OF_WORD = "</w>"

CLIP_WORDS = r"""<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
QWEN2_WORDS = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)

Vocabulary = dict[str, int]
Merges = list[tuple[str, str]]


# -- files ------------------------------------------------------------------------------------------------------------


def read_vocab_txt(path: Path) -> Vocabulary:
    """Read one piece per line; its id is the line number, from 0. Raises ValueError if a piece occurs twice."""
    vocabulary: Vocabulary = {}
    lines = _text(path).split("\n")
    for number, piece in enumerate(lines[: -1 if lines[-1] == "" else None]):
        if piece in vocabulary:
            raise ValueError(f"line {number + 1} repeats {brief(piece)} of line {vocabulary[piece] + 1}")
        vocabulary[piece] = number
    if not vocabulary:
        raise ValueError("it is empty")
    return vocabulary


def read_vocab_json(path: Path) -> Vocabulary:
    """Read a JSON object from pieces to ids."""
    if not path.is_file():
        raise ValueError(f"it needs a {path.name} beside it, which is missing")
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is not valid JSON") from None
    vocabulary = checked(IDS, content, f"{path.name} is not an object from pieces to ids")
    if any(unwritable(piece) for piece in vocabulary):
        raise ValueError(f"{path.name} has a piece with half of a character, which is not valid text")
    if len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError(f"{path.name} gives the same id to several pieces")
    return vocabulary


def read_merges(path: Path, vocabulary: Mapping[str, int]) -> Merges:
    """Read merges, two pieces per line, in order. Raises ValueError if the vocabulary lacks a piece."""
    merges: Merges = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        pair = tuple(line.split(" "))
        if len(pair) != 2:
            raise ValueError(
                f"line {number} of {path.name} should be two pieces with a space between, not {line[:60]!r}"
            )
        left, right = pair
        unknown = [piece for piece in (left, right, left + right) if piece not in vocabulary]
        if unknown:
            raise ValueError(
                f"line {number} of {path.name} merges {brief(left)} and {brief(right)}, but the vocabulary has no "
                f"{brief(unknown[0])}"
            )
        merges.append((left, right))
    return merges


def _text(path: Path) -> str:
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{path.name} has {path.stat().st_size:,} bytes; the limit is {LARGEST_FILE:,}")
    try:
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not valid UTF-8 at byte {error.start}") from None


# -- pipelines --------------------------------------------------------------------------------------------------------


def bert(vocabulary: Vocabulary, config: HubConfig, unk: str) -> tokenizers.Tokenizer:
    """Return BERT's tokenizer: WordPiece with BERT's normalizer, on words cut at spaces and punctuation.

    If the configuration doesn't set `do_lower_case`, text is lowercased if the vocabulary has no capital letters.
    """
    if unk not in vocabulary:
        raise ValueError(f"its vocabulary lacks the unknown token {brief(unk)}")
    cased = any(any("A" <= letter <= "Z" for letter in piece) for piece in vocabulary if not _bracketed(piece))
    raw = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unk, max_input_chars_per_word=LONGEST_WORD))
    raw.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.flag("tokenize_chinese_chars", True),
        strip_accents=config.values.get("strip_accents"),
        lowercase=config.flag("do_lower_case", not cased),
    )
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.decoder = decoders.WordPiece(prefix=CONTINUES)
    return raw


def _bracketed(piece: str) -> bool:
    return piece[:1] + piece[-1:] in ("[]", "<>")


def byte_level(vocabulary: Vocabulary, merges: Merges, config: HubConfig) -> tokenizers.Tokenizer:
    """Return byte-level BPE, as in GPT-2, RoBERTa and BART."""
    raw = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=config.flag("add_prefix_space", False))
    raw.decoder = decoders.ByteLevel()
    return raw


def qwen2(vocabulary: Vocabulary, merges: Merges, config: HubConfig) -> tokenizers.Tokenizer:
    """Return Qwen 2's tokenizer: byte-level BPE on NFC text, with single digits and joined line ends."""
    raw = byte_level(vocabulary, merges, config)
    raw.normalizer = normalizers.NFC()
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=config.flag("add_prefix_space", False), use_regex=False)
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated"), bytes_only])
    return raw


def clip(vocabulary: Vocabulary, merges: Merges, unk: str | None) -> tokenizers.Tokenizer:
    """Return CLIP's tokenizer: byte-level BPE on lowercased words; `</w>` marks the end of a word, and spaces are lost."""
    raw = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token=unk, end_of_word_suffix=END_OF_WORD))
    raw.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = pre_tokenizers.Split(Regex(CLIP_WORDS), "removed", invert=True)
    raw.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    raw.decoder = word_ends()
    return raw


def word_ends() -> decoders.Decoder:
    """Return the decoder that replaces `</w>` by a space after the bytes are decoded, except after the last word."""
    last, others = decoders.Replace(Regex(rf"{END_OF_WORD}\z"), ""), decoders.Replace(END_OF_WORD, " ")
    return decoders.Sequence([decoders.ByteLevel(), last, others])


# -- characters -------------------------------------------------------------------------------------------------------


def characters(vocabulary: Vocabulary, config: HubConfig, roles: Mapping[str, str]) -> tokenizers.Tokenizer:
    """The tokenizer of a CTC model (wav2vec 2.0): characters, with a delimiter in place of spaces, `|` by default. Pieces of
    several characters are matched as a whole. With `do_lower_case`, the vocabulary has capitals, and texts small letters."""
    unk = config.token("unk")
    name = unk.content if unk is not None else "<unk>"
    delimiter = config.values.get("word_delimiter_token") or "|"
    if not isinstance(delimiter, str) or delimiter not in vocabulary:
        raise ValueError(f"word_delimiter_token is {brief(delimiter)}, which the vocabulary lacks")
    space = config.values.get("replace_word_delimiter_char")
    raw = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token=name if name in vocabulary else None))
    capitals = {c: c.lower() for c in vocabulary if len(c) == 1 and c.lower() != c}
    folded = capitals if config.flag("do_lower_case", False) else {}
    small = [normalizers.Replace(letter, capital) for capital, letter in folded.items()]
    raw.normalizer = normalizers.Sequence([*small, normalizers.Replace(" ", delimiter)])
    large = [decoders.Replace(capital, letter) for capital, letter in folded.items()]
    spaces = decoders.Replace(delimiter, space if isinstance(space, str) else " ")
    raw.decoder = decoders.Sequence([decoders.Fuse(), *large, spaces])
    control = {token.content for role in ALL_ROLES if (token := config.token(role)) is not None} | {*roles.values()}
    whole = [piece for piece in vocabulary if len(piece) > 1 and piece not in control]
    raw.add_tokens([AddedToken(piece, normalized=False) for piece in whole])
    return raw


def residues(vocabulary: Vocabulary, roles: Mapping[str, str]) -> tokenizers.Tokenizer:
    """ESM's tokenizer of proteins: each letter of the vocabulary is a token, and what lies between two is unknown."""
    letters = "".join(re.escape(piece) for piece in vocabulary if len(piece) == 1)
    if not letters or roles["unk"] not in vocabulary:
        raise ValueError(f"it needs tokens of one letter, and the token {brief(roles['unk'])}")
    raw = tokenizers.Tokenizer(models.WordLevel(vocabulary, roles["unk"]))
    split = pre_tokenizers.Split(Regex(f"[{letters}]"), "isolated")
    raw.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), split])
    control = [AddedToken(piece, special=True, normalized=False) for piece in vocabulary if len(piece) > 1]
    raw.add_special_tokens(control)
    return raw
