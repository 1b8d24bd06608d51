"""The directory of a study: free, held by a study, or by something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.runs.compare.study_directory import needs_resume, saved_study


def test_a_directory_is_free_or_holds_a_study(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert saved_study(out, "ablation.yaml", "an ablation") is None
    out.mkdir()
    assert saved_study(out, "ablation.yaml", "an ablation") is None
    (out / "ablation.yaml").write_text("seeds: [0, 1]\n")
    assert saved_study(out, "ablation.yaml", "an ablation") == {"seeds": [0, 1]}
    with pytest.raises(
        ValueError, match="out holds something that is not a tuning; choose another directory with --out"
    ):
        saved_study(out, "tuning.yaml", "a tuning")
    with pytest.raises(ValueError, match="is not a tuning"):
        saved_study(out / "ablation.yaml", "tuning.yaml", "a tuning")
    assert "holds a tuning; continue it with --resume" in str(needs_resume(out, "a tuning"))
