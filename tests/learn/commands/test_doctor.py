"""`qkv doctor`: its table, its JSON and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qkv.cli import main
from qkv.learn.doctor import examination
from qkv.learn.doctor.check import DoctorCheck

pytestmark = pytest.mark.usefixtures("elsewhere")

CHECKS = (
    DoctorCheck("versions", "torch", "2.13.0"),
    DoctorCheck("versions", "qkv[video]", "not installed: videos", "ok", "pip install 'qkv[video]'"),
    DoctorCheck("threads", "PyTorch", "1 for 2 cores", "note", "unset OMP_NUM_THREADS"),
    DoctorCheck("storage", "[temporary] files", "/tmp, 3 MiB free", "problem", "free some space"),
)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[DoctorCheck]:
    """The checks that the command shows; they may be changed."""
    results = list(CHECKS)

    def examine(*options: Any) -> Iterator[DoctorCheck]:
        return iter(results)

    monkeypatch.setattr(examination, "examine", examine)
    return results


def test_the_table_lists_each_check_with_its_remedy(
    checks: list[DoctorCheck], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 1
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "versions  ✓  torch              2.13.0",
        "          ·  qkv[video]         not installed: videos → pip install 'qkv[video]'",
        "threads   !  PyTorch            1 for 2 cores",
        "                                → unset OMP_NUM_THREADS",
        "storage   ✗  [temporary] files  /tmp, 3 MiB free",
        "                                → free some space",
        "",
        "1 problem ([temporary] files); 1 note (PyTorch)",
    ]
    del checks[3]
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("\n0 problems; 1 note (PyTorch)\n")


def test_json_holds_every_check(checks: list[DoctorCheck], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is False and len(result["checks"]) == len(CHECKS)
    assert result["checks"][2] == {
        "section": "threads",
        "name": "PyTorch",
        "value": "1 for 2 cores",
        "status": "note",
        "remedy": "unset OMP_NUM_THREADS",
    }
    del checks[3]
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_the_status_says_whether_this_machine_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--no-measure", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert status == (0 if result["ok"] else 1)
    assert {check["section"] for check in result["checks"]} == {"versions", "devices", "threads", "kernels", "storage"}


def test_a_pytorch_that_can_not_be_imported(tmp_path: Path) -> None:
    error = "libcudart.so.13: cannot open shared object file"
    (tmp_path / "torch.py").write_text(f"raise ImportError({error!r})\n", encoding="utf-8")
    program = "import sys; sys.path.insert(0, '.'); from qkv.cli import main; sys.exit(main(['doctor', '--json']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    (check,) = json.loads(done.stdout)["checks"]
    assert check["value"] == f"can't be imported: {error}" and "--force-reinstall" in check["remedy"]
