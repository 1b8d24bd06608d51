"""`make` installs PyTorch's CPU wheel if it finds no GPU, and says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CPU = "https://download.pytorch.org/whl/cpu"
FROM_CPU = f"--index-url {CPU} --no-deps --retries 0 --timeout 10 torch"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def executable(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)


def install(folder: Path, *settings: str, reachable: bool = True) -> tuple[list[str], str]:
    """Run the set-up of `make` with a Python whose pip only logs: the arguments of each `install`, and the output."""
    log = folder / "pip.log"
    unreachable = 'case "$*" in *--index-url*) exit 1;; esac'
    executable(
        folder / "venv" / "bin" / "python",
        'case "$*" in *install*) echo "$*" >> "$PIP_LOG_OF_TEST";; esac',
        "" if reachable else unreachable,
    )
    for name in ("nvidia-smi", "rocminfo"):  # the machine's own GPU plays no part
        if not (folder / "bin" / name).exists():
            executable(folder / "bin" / name, "exit 9")
    machine = {"SYSTEM": "Linux", "NVIDIA": folder / "no-nvidia", "ROCM": folder / "no-rocm", "VENV": folder / "venv"}
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "TORCH_INDEX")}
    environment |= {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PIP_LOG_OF_TEST": str(log)}
    done = subprocess.run(
        ["make", *(f"{name}={value}" for name, value in machine.items()), *settings, str(folder / "venv/.installed")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    installs = [re.sub(r".* install -c constraints.txt ", "", line) for line in log.read_text().splitlines()]
    assert installs.pop() == "--quiet -e .[dev]"
    return installs, done.stdout


def test_a_machine_without_a_gpu_gets_the_cpu_wheel(tmp_path: Path) -> None:
    installs, output = install(tmp_path)
    assert installs == [FROM_CPU]
    assert f"Installing PyTorch from {CPU} (CPU only: no GPU found) …" in output


def test_pips_own_index_serves_if_the_cpu_index_can_not_be_reached(tmp_path: Path) -> None:
    installs, output = install(tmp_path, reachable=False)
    assert installs == [FROM_CPU, "torch"]
    assert "That failed; installing PyTorch from pip's own index …" in output


def test_a_gpu_that_nvidia_smi_lists_gets_the_wheel_with_cuda(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "nvidia-smi", '[ "$1" = -L ] && echo "GPU 0: NVIDIA H100"')
    installs, output = install(tmp_path)
    assert installs == ["torch"]
    assert "from pip's own index (with CUDA: this machine has an NVIDIA GPU) …" in output


def test_a_driver_without_nvidia_smi_is_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "driver").mkdir()
    assert install(tmp_path, f"NVIDIA={tmp_path / 'driver'}")[0] == ["torch"]


def test_an_amd_gpu_is_told_where_its_wheel_is_described(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "rocminfo", "exit 0")
    installs, output = install(tmp_path)
    assert installs == ["torch"]
    assert "this machine has an AMD GPU, which needs another wheel: see docs/installation.md" in output


def test_other_systems_have_one_wheel(tmp_path: Path) -> None:
    installs, output = install(tmp_path, "SYSTEM=Darwin")
    assert installs == ["torch"]
    assert "(the only wheel for Darwin)" in output


@pytest.mark.parametrize(
    ("index", "torch"),
    [("", "torch"), ("https://example.org/whl", f"{FROM_CPU.replace(CPU, 'https://example.org/whl')}")],
)
def test_the_user_may_name_the_index(index: str, torch: str, tmp_path: Path) -> None:
    installs, output = install(tmp_path, f"TORCH_INDEX={index}")
    assert installs == [torch]
    assert "(chosen by TORCH_INDEX)" in output


def test_the_page_names_the_same_index() -> None:
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    assert f"--index-url {CPU}" in page and f"TORCH_INDEX={CPU}" in page
