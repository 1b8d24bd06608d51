"""Every numbered bug has a test."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_bug_has_a_test() -> None:
    """All 26 numbers are tested, each in the file of its number."""
    sources = (path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    tested = {
        int(number) for source in sources for number in re.findall(r"^def test_bug_(\d\d)_", source, re.MULTILINE)
    }
    assert tested == set(range(1, 27))
