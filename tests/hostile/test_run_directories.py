"""Damaged run directories end in one sentence, whatever command meets them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from run_directories import SECONDS, check, mutants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by Linux")


@pytest.mark.parametrize("damaged", [10, pytest.param(40, marks=pytest.mark.slow)])
def test_damaged_runs_work_or_are_refused(trained: Path, damaged: int) -> None:
    damages = list(mutants(trained, 3, damaged))
    found = check(trained, damages)
    wrong = [
        f"{damage.command} on {damage.file}: {how}"
        for damage, (how, seconds) in zip(damages, found, strict=True)
        if how.startswith("crash") or seconds > SECONDS / 2
    ]
    assert not wrong, "\n".join(wrong[:5])
    assert any(how.startswith("refused") for how, _ in found) and any(how == "works" for how, _ in found)
