"""Reads and writes Marian tokenizers: a SentencePiece model for each side, and a vocab.json with the ids of both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import tokenizers
from tokenizers import AddedToken

from ..sentencepiece.model_file import ModelType, Piece, PieceKind, SentencePiece
from ..sentencepiece.model_writer import dump, unigram_of
from ..sentencepiece.pipeline import pipeline
from ..tokenizer_json import write_bytes
from .vocab_files import read_vocab_json

SOURCE, TARGET, VOCABULARY = "source.spm", "target.spm", "vocab.json"
_RARE, _NEVER = 20.0, 10_000.0  # score difference of the other side's characters, and of its longer pieces
_CONTROL = ("</s>", "<pad>", "<s>")


def marian(model: SentencePiece, vocabulary_path: Path) -> tokenizers.Tokenizer:
    """Read one side of a Marian tokenizer, with the ids of vocab.json. Language tags such as `>>fra<<` become markers.

    Characters that only the other side has are used if this side's pieces can't encode a text, because `transformers`
    looks up SentencePiece's unknown pieces in the shared vocabulary.
    """
    if model.model_type is not ModelType.UNIGRAM:
        raise ValueError(f"it is a {model.model_type.name.lower()} model, but Marian tokenizers are unigram models")
    vocabulary = read_vocab_json(vocabulary_path)
    names = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[name] for name in names] != list(range(len(names))) or "<unk>" not in vocabulary:
        raise ValueError(f"{vocabulary_path.name} must number its pieces from 0 without gaps, and contain '<unk>'")
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind is PieceKind.NORMAL}
    least = min(scores.values(), default=0.0)
    others = {name: least - (_RARE if len(name) == 1 else _NEVER) for name in names}
    pieces = tuple(Piece(name, scores.get(name, others[name]), _kind(name)) for name in names)
    raw = pipeline(replace(model, pieces=pieces, unk_id=vocabulary["<unk>"]))
    markers = [name for name in names if _is_marker(name)]
    raw.add_tokens([AddedToken(name, special=False, normalized=False) for name in markers])
    return raw


def write(source: tokenizers.Tokenizer, target: tokenizers.Tokenizer, folder: Path) -> None:
    """Write source.spm, target.spm and vocab.json, so `transformers`' MarianTokenizer gives the same ids.

    Each model has the pieces of both sides; pieces of the other side have much lower scores. Raises ValueError, and writes
    nothing, if a side is not a unigram model.
    """
    files = {
        name: dump(_without_markers(unigram_of(side, _kind))) for name, side in ((SOURCE, source), (TARGET, target))
    }
    vocabulary = sorted(source.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    files[VOCABULARY] = (json.dumps(dict(vocabulary), ensure_ascii=False) + "\n").encode()
    for name, data in files.items():
        write_bytes(folder / name, data)


def _without_markers(model: SentencePiece) -> SentencePiece:
    """Mark language tags as unused, because `MarianTokenizer` removes them before the model is applied."""
    unused = (piece._replace(kind=PieceKind.UNUSED) if _is_marker(piece.text) else piece for piece in model.pieces)
    return replace(model, pieces=tuple(unused))


def _is_marker(name: str) -> bool:
    return name.startswith(">>") and name.endswith("<<")


def _kind(name: str) -> PieceKind:
    if name == "<unk>":
        return PieceKind.UNKNOWN
    return PieceKind.CONTROL if name in _CONTROL else PieceKind.NORMAL
