"""The reader of SentencePiece's protocol buffers: what the specification writes, and nothing else."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.tokenizers.sentencepiece import model_file
from qkv.data.tokenizers.sentencepiece.model_file import ModelType, Piece, PieceKind, fields
from qkv.data.tokenizers.tokenizer import Tokenizer

FOLDER = Path(__file__).parent / "models"  # by make_tokenizer_golden.py


def number(value: int) -> bytes:
    """A varint."""
    value &= (1 << 64) - 1
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + number(rest) if rest else bytes([low])


def message(*parts: tuple[int, int | float | bytes]) -> bytes:
    """A protocol buffer, written as its specification says."""
    out = b""
    for field, value in parts:
        if isinstance(value, float):
            out += number(field << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            out += number(field << 3) + number(value)
        else:
            out += number(field << 3 | 2) + number(len(value)) + value
    return out


def model(*pieces: tuple[str, float, int], trainer: bytes = b"", normalizer: bytes = b"\x18\x01") -> bytes:
    written = [(1, message((1, text.encode()), (2, score), (3, kind))) for text, score, kind in pieces]
    return message(*written, (2, trainer), (3, normalizer))


PIECES = (("<unk>", 0.0, 2), ("▁a", -1.5, 1), ("b", -2.25, 1), ("▁", -4.0, 1))


def test_the_reader_reads_what_the_specification_writes() -> None:
    read = model_file.parse(model(*PIECES, trainer=message((3, 1), (43, -1), (40, 0))))
    assert read.pieces == tuple(Piece(text, score, PieceKind(kind)) for text, score, kind in PIECES)
    assert (read.model_type, read.pad_id, read.bos_id) == (ModelType.UNIGRAM, -1, 1)
    assert read.add_dummy_prefix and read.remove_extra_whitespaces and not read.byte_fallback


@given(st.lists(st.tuples(st.integers(1, 2**20), st.one_of(st.integers(0, 2**64 - 1), st.binary(max_size=200)))))
def test_fields_come_back(parts: list[tuple[int, int | bytes]]) -> None:
    assert list(fields(message(*parts))) == parts


@given(st.binary(max_size=200))
def test_noise_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(ValueError):
        model_file.parse(data)


def test_a_file_that_is_cut_off_is_never_read(tmp_path: Path) -> None:
    whole = (FOLDER / "unigram.model").read_bytes()
    for end in range(0, len(whole), 7):
        (tmp_path / "cut.model").write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"cut.model' is not a usable SentencePiece model: it") as error:
            Tokenizer.load(tmp_path / "cut.model")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"#version: 0.2\ni n\n", "no SentencePiece model"),
        (model(*PIECES, PIECES[1]), "'▁a' twice"),
        (model(*PIECES[1:]), "its unknown piece has the id 0, which is not"),
        (model(*PIECES, trainer=message((35, 1))), "lacks some of the pieces <0x00>"),
        (model(*PIECES, trainer=message((24, 1))), "treat_whitespace_as_suffix"),
        (model(*PIECES, trainer=message((3, 3))), "word model"),
        (model(*PIECES, trainer=message((3, 9))), "the model type 9"),
        (model(*PIECES, normalizer=message((5, 0))), "escape_whitespaces is off"),
        (model(("a", float("nan"), 1)), "the score nan"),
        (model(("a", 0.0, 9)), "of type 9"),
        (message((1, 5)), "a field holds a number"),
        (model(*PIECES, normalizer=message((2, b"not a table"))), "not a usable SentencePiece model"),
    ],
)
def test_models_that_cannot_be_used(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.model").write_bytes(data)
    with pytest.raises(ValueError, match=says) as error:
        Tokenizer.load(tmp_path / "bad.model")
    assert "\n" not in str(error.value)
