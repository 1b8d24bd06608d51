"""The commands `qkv score` and `qkv embed`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_a_pair_is_scored_by_tab_or_option(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(trained)
    assert main(["score", run, "a b\tb a"]) == 0
    tab = capsys.readouterr().out
    assert main(["score", run, "a b", "--target", "b a"]) == 0
    assert capsys.readouterr().out == tab
    assert "</s>:" in tab and "perplexity" in tab and tab.splitlines()[-1].startswith("all: ")
    assert main(["score", run, "a b"]) == 2
    assert "is not SOURCE<tab>TARGET" in capsys.readouterr().err
    assert main(["score", run, "a", "b", "--target", "x"]) == 2
    assert "2 texts and 1 targets" in capsys.readouterr().err


def test_vectors_are_printed_or_written(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(trained)
    assert main(["embed", run, "a b", "c"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["embed", run, "a b", "c", "--out", "x.npy"]) == 0
    assert np.load(tmp_path / "x.npy") == pytest.approx(np.array(printed), abs=1e-6)
    assert main(["embed", run, "a b", "c", "--out", "y.npy", "--pooling", "none"]) == 0
    assert capsys.readouterr().out.split() == ["3", "2"]
    assert np.load(tmp_path / "y.npy").shape == (5, 16)
    assert main(["embed", run, "a b", "c", "--out", "z.npy", "--normalize", "--pooling", "weighted-mean"]) == 0
    assert np.linalg.norm(np.load(tmp_path / "z.npy"), axis=1) == pytest.approx(1, abs=1e-6)
    assert main(["embed", run, "a", "--prompt", "query"]) == 2
    assert "has no prompt 'query'; it has no prompts" in capsys.readouterr().err
    assert main(["embed", run, "a", "--pooling", "maximal"]) == 2
    assert main(["embed", run, "a", "--out", "x.doc"]) == 2
