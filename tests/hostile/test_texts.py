"""Hostile and broken text files are read, or refused by one sentence that names them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from texts import SOUND, check, mutants, source_of


def test_what_is_sound_is_read(tmp_path: Path) -> None:
    for name, (content, _) in SOUND.items():
        assert check(name, content, tmp_path) is None
        assert len(list(source_of(tmp_path / name, {}).examples())) > 30 * (name != "text.txt")


def test_mutants_end_in_one_sentence(tmp_path: Path) -> None:
    wrong = [said for name, content in mutants(0, 150) if (said := check(name, content, tmp_path)) is not None]
    assert not wrong, "\n".join(wrong[:5])


def test_the_same_seed_gives_the_same_mutants() -> None:
    assert list(mutants(5, 20)) == list(mutants(5, 20)) != list(mutants(6, 20))


@pytest.mark.slow
def test_many_mutants(tmp_path: Path) -> None:
    wrong = [said for name, content in mutants(1, 3000) if (said := check(name, content, tmp_path)) is not None]
    assert not wrong, "\n".join(wrong[:5])
