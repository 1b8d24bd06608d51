"""N-grams with back-off: a file whose numbers were worked out by hand, and what is said of damaged ones."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest

from qkv.runs.tasks.speech_recognition.ngrams import NGrams

# p(a) = 0.5, p(b) = 0.2, p(</s>) = 0.2, p(<unk>) = 0.1; after a: p(b | a) = 0.6, b(a) = 0.5, of the other half
ARPA = """\\data\\
ngram 1=5
ngram 2=2
ngram 3=1

\\1-grams:
-99 <s> -0.30103
-0.30103 a -0.30103
-0.69897 b
-0.69897 </s>
-1 <unk>

\\2-grams:
-0.2218487 a b -0.1
-0.39794 <s> a

\\3-grams:
-0.09691 <s> a b

\\end\\
"""


@pytest.fixture
def model(tmp_path: Path) -> NGrams:
    (tmp_path / "words.arpa").write_text(ARPA)
    return NGrams.read(tmp_path / "words.arpa")


@pytest.mark.parametrize(
    ("words", "ended", "probability"),
    [
        ([], False, 1.0),
        (["a"], False, 0.4),
        (["a", "b"], False, 0.4 * 0.8),
        (["b"], False, 0.5 * 0.2),  # backed off from <s>
        (["b", "a", "b"], False, 0.5 * 0.2 * 0.5 * 0.6),  # b has no back-off weight: 1
        (["a", "a"], False, 0.4 * 1 * 0.5 * 0.5),  # <s> a is no history, a is
        (["a", "b"], True, 0.4 * 0.8 * 10**-0.1 * 0.2),
        (["x"], True, 0.5 * 0.1 * 0.2),
        ([], True, 0.5 * 0.2),
    ],
)
def test_probabilities_worked_by_hand(model: NGrams, words: list[str], ended: bool, probability: float) -> None:
    assert model(words, ended) == pytest.approx(math.log(probability), abs=1e-4)


def test_a_compressed_file_is_the_same(model: NGrams, tmp_path: Path) -> None:
    (tmp_path / "words.arpa.gz").write_bytes(gzip.compress(ARPA.encode()))
    assert NGrams.read(tmp_path / "words.arpa.gz") == model


def test_without_unk_an_unknown_word_is_unlikely(tmp_path: Path) -> None:
    (tmp_path / "a.arpa").write_text(ARPA.replace("-1 <unk>\n", "").replace("ngram 1=5", "ngram 1=4"))
    assert NGrams.read(tmp_path / "a.arpa")(["x"], False) < math.log(1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the cat sat", "line 1, is no ARPA file"),
        (ARPA.replace("\\end\\", ""), r"has 8 of 8 n-grams, and no"),
        (ARPA.replace("-0.39794 <s> a\n", ""), "truncated or damaged: it has 7 of 8 n-grams"),
        (ARPA.replace("-0.39794 <s> a", "much <s> a"), "line 15, is 'much <s> a', not a logarithm with 2 words"),
        (ARPA.replace("-0.39794 <s> a", "0.4 <s> a"), "line 15, is '0.4 <s> a', not a logarithm"),
        (ARPA.replace("ngram 2=2", "ngram 2=many"), "line 3, has 'many'"),
    ],
)
def test_damaged_files_have_one_sentence_each(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.arpa").write_text(text)
    with pytest.raises(ValueError, match=message):
        NGrams.read(tmp_path / "a.arpa")


def test_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.arpa").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="no text in UTF-8"):
        NGrams.read(tmp_path / "a.arpa")
    with pytest.raises(ValueError, match="can't be read: No such file"):
        NGrams.read(tmp_path / "b.arpa")
