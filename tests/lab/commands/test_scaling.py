"""`qkv scaling`: plans, studies, fits of tables, and mistakes in one sentence with status 2."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from scaling_points import CONSTANTS, made_points
from small_study import written_study

from qkv.cli import main
from qkv.lab.laws.laws import fit_laws
from qkv.lab.scaling import scaling


@pytest.fixture
def points(tmp_path: Path) -> Path:
    rows = made_points(0.001).to_rows()
    with (tmp_path / "points.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path / "points.csv"


def test_a_table_is_fitted(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = points.with_suffix(".html")
    options = ["--bootstrap", "4", "--predict", "1e20", "--out", str(out)]
    assert main(["scaling", "fit", str(points), *options]) == 0
    printed = capsys.readouterr()
    assert "35 points" in printed.out and "  α = 0.3" in printed.out and "1e+20 FLOPs: N = " in printed.out
    assert "IsoFLOP profiles: N_opt" in printed.out and printed.err == f"wrote {out}\n" and "<svg" in out.read_text()


def test_a_fit_as_json(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--bootstrap", "0", "--leave-out-highest", "2", "--predict", "1e20", "--json"]
    assert main(["scaling", "fit", str(points), *options]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["points"] == 33 and values["parametric"]["E"]["value"] == pytest.approx(CONSTANTS[0], rel=0.05)
    assert values["budgets"][0]["flops"] == 1e20


def test_a_plan_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["scaling", str(written_study(tmp_path)), "--plan", "--jobs", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "8 runs will take about" in printed and "1.6e08-32x1" in printed and not out.exists()


@pytest.mark.slow
def test_a_study_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(scaling, "fit_laws", lambda points, budgets, _: fit_laws(points, budgets, 4))
    file = written_study(tmp_path, budgets=[5e7, 8e7], sizes=["8x1", "12x1", "16x1", "24x1"])
    argv = ["scaling", str(file), "--jobs", "1", "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert main([*argv, "--time", "10m"]) == 0
    printed = capsys.readouterr().out
    assert "held out 8e07-24x1: predicted " in printed and "open " in printed
    assert main([*argv, "--resume", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["held_out"]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budgets", "many"], "--budgets is a list of FLOPs such as 1e12,2e12, not 'many'"),
        (["--sizes", "8"], "such as 64x2, not '8'"),
        (["--time", "soon"], "'soon' is not a duration"),
        (["--rate", "log"], "rate is constant, or a power of the width"),
        (["--resume", "--overwrite"], "give one of them"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scaling", str(written_study(tmp_path)), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_wrong_tables_are_one_sentence(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = points.with_name("few.csv")
    few.write_text("\n".join(points.read_text().splitlines()[:4]))
    assert main(["scaling", "fit", str(few)]) == 2
    assert "at least 6 points" in capsys.readouterr().err
    assert main(["scaling", "fit", str(points), "--out", "laws.png"]) == 2
    assert "--out writes an .html file, not laws.png" in capsys.readouterr().err
    assert main(["scaling", "fit", str(points.with_name("none.csv"))]) == 2
    assert "no such file" in capsys.readouterr().err
