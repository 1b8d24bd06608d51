"""`qkv report`: the report of a run again, also of one that was interrupted."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from qkv.cli import main
from qkv.training.step import Stepper

pytestmark = pytest.mark.usefixtures("elsewhere")

SMALL = [
    *("model.d_model=16", "model.n_heads=2", "model.d_ff=32", "model.n_layers=1", "batching.tokens=256"),
    *("data.train=64", "data.validation=8", "data.test=8", "data.longest=6", "evaluation.test_examples=4"),
]


def test_an_interrupted_run_has_a_report_and_a_killed_one_gets_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    take = Stepper.take

    def interrupted(self: Stepper, *arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return take(self, *arguments)

    monkeypatch.setattr(Stepper, "take", interrupted)
    assert main(["train", "reverse", *SMALL, "training.max_steps=9", "--out", "run"]) == 130
    assert "open run/report.html in a browser" in capsys.readouterr().out
    page = Path("run/report.html")
    assert "This training was interrupted after step 1; continue it with: qkv train run --resume" in page.read_text()

    page.unlink()
    log = Path("run/metrics.jsonl")  # as a killed process leaves it
    lines = [line for line in log.read_text().splitlines() if json.loads(line).get("event") != "interrupted"]
    log.write_text("\n".join(lines) + "\n")
    assert main(["report", "run"]) == 0
    assert capsys.readouterr().out == "The report is in run/report.html; open it in a browser.\n"
    assert "This training has not ended: it was killed or it failed" in page.read_text()
    assert not Path("run/evaluation.json").exists()


@pytest.mark.parametrize("name", ["nowhere", "folder"])
def test_what_is_no_run_is_refused_and_left_alone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    Path("folder/notes.txt").touch()
    assert main(["report", name]) == 2
    assert f"qkv: {name} is not a run directory; give one that `qkv train` wrote" in capsys.readouterr().err
    assert [path.name for path in Path("folder").iterdir()] == ["notes.txt"] and not Path("nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("a b", "several runs are compared on a separate page; name it with --out page.html"),
        ("a --out page.html", "--out is for the page of several runs"),
        ("a --overwrite", "--overwrite is for the page of several runs"),
        ("a b --out page.pdf", "--out is a file that ends in .html, not page.pdf"),
        ("a b --out no/page.html", "there is no folder no for page.html; create it first"),
    ],
)
def test_where_the_page_of_several_runs_goes(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        Path(name).mkdir()
        Path(name, "recipe.yaml").write_text("name: x\n")
    assert main(["report", *arguments.split()]) == 2
    assert message in capsys.readouterr().err
    assert main(["report", "a", "b", "--out", "page.html"]) == 0
    assert "All settings are the same." in Path("page.html").read_text(encoding="utf-8")
