"""Names of languages are those of transformers' Whisper."""

from __future__ import annotations

import pytest

from qkv.runs.inference.transcribe.languages import code_of


def test_every_name_of_transformers_has_its_code() -> None:
    theirs = pytest.importorskip("transformers.models.whisper.tokenization_whisper")
    codes = list(theirs.LANGUAGES)
    for name, code in theirs.TO_LANGUAGE_CODE.items():
        assert code_of(name, codes) == code == code_of(code, codes) == code_of(name.upper(), codes)


def test_unknown_languages_are_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match="no language 'klingon'; there is: de, en"):
        code_of("klingon", ["de", "en"])
