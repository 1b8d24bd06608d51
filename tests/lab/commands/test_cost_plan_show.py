"""What `qkv cost --plan` shows: published runs and simulations."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_the_docs_have_the_table_of_published_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--published", "--markdown"]) == 0
    printed = capsys.readouterr().out
    page = (Path(__file__).parents[3] / "docs" / "scale.md").read_text(encoding="utf-8")
    assert printed.strip() in page, "write it again: qkv cost --published --markdown"


@pytest.mark.slow
def test_a_simulation_is_drawn(tmp_path: Path) -> None:
    out = tmp_path / "growth.html"
    words = ["cost", "gpt2", "--simulate", "--hardware", "h100", "--length", "256", "--out", str(out)]
    assert main(words) == 0
    assert "<svg" in out.read_text(encoding="utf-8")
