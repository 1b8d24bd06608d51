"""What is left of a machine's memory, by made files of the kernel."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from qkv.nn.cost import hardware

CPU = torch.device("cpu")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 1000 KiB available and no control group."""
    free = SimpleNamespace(available=1000 * 1024)
    monkeypatch.setattr(hardware.psutil, "virtual_memory", lambda: free)
    monkeypatch.setattr(hardware, "OWN_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(hardware, "GROUPS", tmp_path / "groups")
    return tmp_path


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_what_the_system_calls_available() -> None:
    assert hardware.available(CPU) == 1000 * 1024


def test_a_system_without_proc_has_a_figure_too(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS and Windows: no file of the kernel's says anything."""
    monkeypatch.setattr(hardware, "_text", lambda path: "")
    assert hardware.available(CPU) == 1000 * 1024


def test_cores_are_those_that_the_process_may_run_on() -> None:
    assert 1 <= hardware.cores() <= (os.cpu_count() or 1)


def test_nothing_is_known_of_a_device_that_does_not_say() -> None:
    assert hardware.available(torch.device("meta")) is None


def test_the_tightest_group_above_the_process_counts(made: Path) -> None:
    (made / "cgroup").write_text("0::/batch/job\n")
    group(made / "groups/batch/job", memory__max="max\n", memory__current="100\n")
    group(
        made / "groups/batch",
        memory__max="5000\n",
        memory__current="4500\n",
        memory__stat="anon 1\ninactive_file 200\n",
    )
    assert hardware.available(CPU) == 5000 - 4500 + 200


def test_version_1_of_control_groups(made: Path) -> None:
    (made / "cgroup").write_text("5:cpu:/a\n4:memory:/a\n")
    names = {"memory__limit_in_bytes": "3000\n", "memory__usage_in_bytes": "1000\n"}
    group(made / "groups/memory/a", **names, memory__stat="total_inactive_file 10\n")
    assert hardware.available(CPU) == 2010


def test_a_group_over_its_limit_leaves_nothing(made: Path) -> None:
    (made / "cgroup").write_text("0::/\n")
    group(made / "groups", memory__max="10\n", memory__current="20\n")
    assert hardware.available(CPU) == 0


def test_the_tightest_quota_of_cores_counts(made: Path) -> None:
    assert hardware.cpu_quota() is None
    (made / "cgroup").write_text("0::/batch/job\n")
    group(made / "groups/batch/job", cpu__max="max 100000\n")
    assert hardware.cpu_quota() is None
    group(made / "groups/batch", cpu__max="150000 100000\n")
    assert hardware.cpu_quota() == 1.5


def test_the_quota_of_cores_in_version_1(made: Path) -> None:
    (made / "cgroup").write_text("4:cpu,cpuacct:/docker/1\n3:memory:/docker/1\n")
    group(made / "groups/cpu/docker", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert hardware.cpu_quota() is None
    group(made / "groups/cpu/docker/1", cpu__cfs_quota_us="400000\n", cpu__cfs_period_us="100000\n")
    assert hardware.cpu_quota() == 4


def test_usable_cores_match_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "cores", lambda: 64)
    for quota, cores in ((None, 64), (3.5, 4), (0.5, 1), (100.0, 64)):
        monkeypatch.setattr(hardware, "cpu_quota", lambda quota=quota: quota)
        assert hardware.usable_cores() == cores


def test_this_machine_says_something_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = hardware.available(CPU)
    assert found is None or MIB < found < 1 << 50
