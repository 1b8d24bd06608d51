"""Every numbered bug has a test."""

from __future__ import annotations

import re
from pathlib import Path

from summary import NOT_YET


def test_every_bug_has_a_test_or_a_reason() -> None:
    """All 26 numbers are tested, each in the file of its number, or listed with what they wait for."""
    sources = (path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    tested = {
        int(number) for source in sources for number in re.findall(r"^def test_bug_(\d\d)_", source, re.MULTILINE)
    }
    assert tested | NOT_YET.keys() == set(range(1, 27))
    assert not tested & NOT_YET.keys()
