"""What a report reads of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.runs.report.story import Story


def example(source: str, output: str, score: float, **more: Any) -> dict[str, Any]:
    return {"source": source, "target": "yes", "output": output, "score": score, **more}


@pytest.mark.parametrize("content", ['{"by": "chrf", "best": 1, "worst": []}', '{"by": "chrf", "best": []}', "[1]"])
def test_a_malformed_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "extremes.json").write_text(content)
    with pytest.raises(ValueError, match=r"extremes\.json (does not hold|holds a list)"):
        Story.read(tmp_path)


def test_the_files_of_a_run_are_read(tmp_path: Path) -> None:
    extremes = {"by": "chrf", "best": [example("a", "b", 3.5)], "worst": []}
    (tmp_path / "extremes.json").write_text(json.dumps(extremes))
    assert Story.read(tmp_path).extremes == extremes
