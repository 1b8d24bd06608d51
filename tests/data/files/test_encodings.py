"""Files that are not in UTF-8: known by their mark, told by a setting, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.files import cache
from qkv.data.files.encodings import guessed_encoding, open_text, other_readings, reading
from qkv.data.files.lines import Lines
from qkv.data.readers.jsonl import JsonLines
from qkv.data.readers.labelled_text import Labelled
from qkv.data.readers.text import Text

TEXT = "grün\tgreen\n漢字\tkanji\n"


def lines(path: Path, encoding: str = "utf-8") -> str:
    found = Lines(path, encoding)
    return "".join(f"{found[i]}\n" for i in range(len(found)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_says_the_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.encode(encoding))
    assert lines(tmp_path / "a.txt") == TEXT


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16-le", "utf-16-be"])
def test_another_encoding_is_given(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.encode(encoding))
    assert lines(tmp_path / "a.txt", encoding) == TEXT


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf16_without_its_mark_is_no_utf8(tmp_path: Path, order: str) -> None:
    (tmp_path / "a.txt").write_bytes("good night\n".encode(f"utf-16-{order}"))
    with pytest.raises(ValueError, match=rf"50% of its beginning are zero bytes.*encoding=utf-16-{order}"):
        Lines(tmp_path / "a.txt")


def test_a_file_that_is_not_in_its_encoding_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\nb\xf6se\n")
    with pytest.raises(ValueError, match=r"a\.txt', near line 1, is not in the encoding ascii"):
        Lines(tmp_path / "a.txt", "ascii")


@given(text=st.text(st.sampled_from("aé漢😀\n"), min_size=1, max_size=60), chunk=st.integers(1, 9))
def test_characters_between_chunks(tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int) -> None:
    path = tmp_path_factory.mktemp("x") / "a.txt"
    path.write_bytes(text.encode("utf-16"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "CHUNK", chunk)
        assert bytes(open_text(path)).decode() == text


def test_sources_take_an_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("grün\n".encode("cp1252"))
    alone = {"path": str(path), "validation_path": str(path), "test_path": str(path), "encoding": "cp1252"}
    for documents in ("file", "line", "block"):
        assert next(Text.from_dict({**alone, "documents": documents}).examples())["text"].strip() == "grün"
    path.write_bytes('{"text": "grün"}\n'.encode("cp1252"))
    assert next(JsonLines.from_dict(alone).examples())["text"] == "grün"
    path.write_bytes("1 grün\n".encode("utf-16"))
    assert next(Labelled.from_dict({**alone, "encoding": "utf-8"}).examples())["text"] == "grün"


# -- encodings that are guessed -------------------------------------------------------------------------------------

GERMAN = "Das Café „Möwe“ kostet 3 € – schön\n"


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"the cat\n", "ascii"),
        ("schön\n".encode(), "utf-8"),
        ("schön\n".encode()[:4], "utf-8"),
        ("schön\n".encode("utf-16"), "utf-8"),
        ("schön und gut, déjà vu\n".encode("latin-1"), "latin-1"),
        (GERMAN.encode("cp1252"), "cp1252"),
    ],
)
def test_bytes_that_latin_1_has_no_letters_for_mean_cp1252(content: bytes, encoding: str) -> None:
    assert guessed_encoding(content) == encoding


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "".join(f"café {i}\n" for i in range(9)).encode() + "café\n".encode("latin-1"),
            r"^line 10 is not valid UTF-8, and most of the file is \(9 other",
        ),
        ("text,label\nпривет мир,pos\n".encode("cp1251"), r"not Western ones \(line 2\).* cp1251 \(Cyrillic: "),
        ("text,label\nこんにちは世界,pos\n".encode("shift_jis"), r"shift_jis \(Japanese: "),
        ("text,label\n今天天气很好,pos\n".encode("gb18030"), r"gb18030 \(Chinese: "),
        ("für müde Hünde\n".encode("cp850"), r"cp850"),
    ],
)
def test_an_encoding_that_can_not_be_told_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        guessed_encoding(content)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "привет мир"),
        ("shift_jis", "こんにちは世界"),
        ("shift_jis", "映画 表示"),
        ("gb18030", "你好世界"),
        ("big5", "你好 世界"),
        ("euc_kr", "안녕하세요 세계"),
    ],
)
def test_encodings_of_other_scripts_are_refused_with_the_first_word_in_each(encoding: str, text: str) -> None:
    with pytest.raises(ValueError, match=rf"{encoding} \(\w+: '{text.split()[0]}'\)"):
        guessed_encoding(f"text,label\n{text},pos\n".encode(encoding))


@pytest.mark.parametrize(("encoding", "text"), [("cp1250", "łódź"), ("cp1254", "İstanbul")])
def test_the_first_word_in_other_encodings_of_latin_letters_is_given(encoding: str, text: str) -> None:
    content = f"text,label\n{text} x,pos\n".encode(encoding)
    assert other_readings(content, guessed_encoding(content))[encoding][1] == text


def test_the_word_that_is_shown_is_one_that_another_encoding_reads_otherwise() -> None:
    content = "text\nein Café für Größe und señor\n".encode("latin-1")
    assert other_readings(content, "latin-1") == {"cp1250": ("señor", "seńor")}
    assert other_readings("привет".encode("cp1251"), "cp1251") == {}
    assert other_readings("łódź".encode("cp1250"), "cp1250")["cp1252"] == ("łódź", "³ódŸ")


def test_training_says_how_a_file_that_is_not_utf8_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("łódź x\n".encode("cp1250"))
    files = {"path": str(path), "validation_path": str(path), "test_path": str(path)}
    (note,) = [note for note in Text.from_dict({**files, "encoding": "cp1252"}).notes() if "cp1252" in note]
    assert "'³ódŸ' is 'łódź' with data.encoding=cp1250" in note
    path.write_text("łódź x\n", encoding="utf-8")
    assert not [note for note in Text.from_dict(files).notes() if "read as" in note]


def test_western_letters_and_degrees_are_no_chinese() -> None:
    assert guessed_encoding("20°C, café, ¿qué?, ½\n".encode("cp1252")) == "latin-1"
    assert reading("a café".encode("cp1252"), "cp1252") == "café"
