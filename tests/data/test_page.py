"""docs/data.md: each of its examples runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs_and_prints_what_it_says(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(PAGE), "exec"), {"__name__": "__main__"})
    promised = re.findall(r"print\(.*\)  # (.*)", example)
    printed = capsys.readouterr().out.splitlines()
    assert len(promised) == len(printed)
    assert all(line.startswith(said.split("): ")[0]) for line, said in zip(printed, promised, strict=True))
