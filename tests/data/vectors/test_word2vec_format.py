"""Files of word vectors: what is written comes back, what others write is read, what is broken is told by its place."""

from __future__ import annotations

import gzip
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qkv.data.vectors.word2vec_format import Form, read, write
from qkv.data.vectors.word_vectors import Vectors

ROWS = np.array([[0.5, -1.25, 3e-7], [1 / 3, 2.0, -0.0]], np.float32)
TWO = Vectors(("the", "straße"), ROWS)
BINARY = b"2 3\n" + b"".join(
    word.encode() + b" " + struct.pack("<3f", *row) + b"\n" for word, row in zip(TWO.words, ROWS, strict=True)
)

word = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=8)
tables = st.lists(word, min_size=1, max_size=8, unique=True).flatmap(
    lambda words: st.tuples(
        st.just(tuple(words)),
        st.integers(1, 5).flatmap(
            lambda e: arrays(
                np.float32, (len(words), e), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
            )
        ),
    )
)


@given(tables, st.sampled_from(["word2vec", "binary"]), st.booleans())
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, table: tuple[tuple[str, ...], np.ndarray], form: Form, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("v") / ("v.gz" if packed else "v")
    vectors = Vectors(*table)
    again = read(write(vectors, path, form))
    assert again.words == vectors.words
    assert np.array_equal(again.array, vectors.array)


@pytest.mark.parametrize("form", ["word2vec", "binary", "glove"])
def test_every_form_is_known_by_its_content(form: Form, tmp_path: Path) -> None:
    again = read(write(TWO, tmp_path / "vectors", form))
    assert again.words == TWO.words and np.array_equal(again.array, ROWS)
    assert not list(tmp_path.glob(".*"))


def test_the_name_says_how_to_write(tmp_path: Path) -> None:
    assert write(TWO, tmp_path / "v.bin").read_bytes() == BINARY
    assert gzip.decompress(write(TWO, tmp_path / "v.bin.gz").read_bytes()) == BINARY
    assert write(TWO, tmp_path / "v.vec").read_bytes().startswith(b"2 3\nthe 0.5 -1.25 ")
    assert write(TWO, tmp_path / "v.txt", "glove").read_bytes().startswith(b"the 0.5 -1.25 ")


@pytest.mark.parametrize(("name", "form"), [("v.bin", "glove"), ("v.bin.gz", "word2vec"), ("v.txt", "binary")])
def test_a_name_that_contradicts_the_form_is_refused(name: str, form: Form, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"the format {form} is .* choose a name that ends in"):
        write(TWO, tmp_path / name, form)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"2 2\nthe 1 2 \na 3 4 \n", ("the", "a")),  # the spaces that the authors' program leaves at line ends
        (b"2 2\r\nthe 1 2\r\na 3 4\r\n", ("the", "a")),
        (b"\xef\xbb\xbf2 2\nthe 1 2\na 3 4", ("the", "a")),
        (b"the 1 2\nat name 3 4\n\xc2\xa0x 5 6\n7 8 9\n", ("the", "at name", "\xa0x", "7")),  # GloVe's words
        (BINARY.replace(b"\nstra", b"stra"), TWO.words),  # without line ends, as gensim writes
    ],
)
def test_what_other_programs_write_is_read(content: bytes, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(content)
    assert read(tmp_path / "v").words == words


def test_other_encodings_are_read_when_named(tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes("stra\u00dfe 1 2\n".encode("latin-1"))
    assert read(tmp_path / "v", encoding="latin-1").words == ("straße",)


def test_a_repeated_word_keeps_its_first_vector_when_asked(tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(b"3 2\nthe 1 2\na 3 4\nthe 5 6\n")
    found = read(tmp_path / "v", keep_first=True)
    assert found["the"].tolist() == [1, 2] and len(found) == 2
    assert found.notes == ("1 lines repeat a word and were left out ('the')",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"the 1 2\na 3\n", "line 2: there are 1 numbers, and the first line has 2"),
        (b"the 1 2\na 3 4 5\n", "line 2: there are 3 numbers, and the first line has 2"),
        (b"2 3\nthe 1 2\na 3 4\n", "line 2: there are 2 numbers, and the first line says 3"),
        (b"3 2\nthe 1 2\na 3 4\n", "line 1: it announces 3 words, and 2 follow: the file is truncated"),
        (b"the 1 2\na x 4\n", "line 2: 'x' is no number"),
        (b"2 2\nthe x 2\na 3 4\n", "line 2: 'x' is no number"),
        (b"the 1 2\na nan 4\n", "line 2: a number is not finite"),
        (b"the 1 2\na 1e60 4\n", "line 2: a number is not finite, or too large for fp32"),
        (b"the 1 2\na 3 4\nthe 5 6\n", "line 3: the word 'the' occurred in line 1 already"),
        (b"the 1 2\n\xff\xfe 3 4\n", "line 2: its word is not valid utf-8 .*; give the file's encoding, latin-1, say"),
        ("the 1 2\n".encode("utf-16"), "is UTF-16.* iconv -f utf-16"),
        (b"hello world\n", "line 1: no number follows its word"),
        (b"0 0\n", "line 1: it announces 0 words of 0 numbers, which is impossible"),
        (b"2 99999999999999999999\nthe 1\n", "line 1: it announces 2 words of 9+ numbers, which is impossible"),
        (b"", "is empty"),
        (BINARY[:-6], "byte 21: the file ends within word 2 of the 2, of 3 numbers each"),
        (BINARY + b"a", "byte 41: more follows than the 2 words"),
        (BINARY.replace(b"stra\xc3\x9fe", b"the"), "byte 21: the word 'the' occurred in byte 4 already"),
        (BINARY.replace(b"stra\xc3\x9fe", b"stra\xdfe"), "byte 21: its word is not valid utf-8"),
    ],
)
def test_what_is_broken_is_told_with_its_place(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        read(tmp_path / "v.txt")
    assert "v.txt" in str(error.value) and "\n" not in str(error.value)


@given(st.integers(4, len(BINARY) - 1))  # after the first line
def test_a_binary_cut_anywhere_is_refused_or_misses_only_its_last_line_end(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("v") / "v.bin"
    path.write_bytes(BINARY[:cut])
    if cut == len(BINARY) - 1:
        assert read(path).words == TWO.words
    else:
        with pytest.raises(ValueError):
            read(path)


def test_a_gzip_file_that_is_cut_off_is_told(tmp_path: Path) -> None:
    (tmp_path / "v.gz").write_bytes(gzip.compress(BINARY)[:-9])
    with pytest.raises(ValueError, match="not a whole gzip file"):
        read(tmp_path / "v.gz")


def test_what_can_not_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        read(tmp_path / "nowhere")
    (tmp_path / "v").write_bytes(b"a 1\n")
    with pytest.raises(ValueError, match="there is no encoding 'latin-99'"):
        read(tmp_path / "v", encoding="latin-99")
    spaced = Vectors(("a b",), ROWS[:1])
    assert read(write(spaced, tmp_path / "g", "glove")).words == ("a b",)
    with pytest.raises(ValueError, match="the word 'a b' can't be written to a binary file"):
        write(spaced, tmp_path / "b.bin")
    with pytest.raises(ValueError, match="did you mean 'glove'"):
        write(spaced, tmp_path / "b", "glov")  # type: ignore[arg-type]
    assert not (tmp_path / "b.bin").exists()


def test_numbers_whose_bytes_are_letters_are_binary(tmp_path: Path) -> None:
    """3.3 is `33S@` in memory."""
    vectors = Vectors(("0",), np.array([[3.3, 3.3]], np.float32))
    assert np.array_equal(read(write(vectors, tmp_path / "v.bin")).array, vectors.array)


def test_archives_and_other_compressions_are_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "glove.zip", "w") as archive:
        archive.writestr("glove.txt", "the 1 2\n")
    (tmp_path / "packed.txt").write_bytes(gzip.compress(b"the 1 2\n"))
    with pytest.raises(ValueError, match=r"glove.zip is a zip archive; unpack it; it holds 'glove.txt'"):
        read(tmp_path / "glove.zip")
    with pytest.raises(ValueError, match=r"packed.txt is compressed with gzip"):
        read(tmp_path / "packed.txt")
    (tmp_path / "glove.txt").write_text("the 1 2\n")
    with pytest.raises(ValueError, match=r"a.txt.zst ends in .zst; choose a name that ends in .gz"):
        write(read(tmp_path / "glove.txt"), tmp_path / "a.txt.zst")
    assert not (tmp_path / "a.txt.zst").exists()
