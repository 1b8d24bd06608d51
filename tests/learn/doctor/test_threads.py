"""What `qkv doctor` says of threads, and of other programs on the machine."""

from __future__ import annotations

import pytest

from qkv.learn.doctor import threads


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_as_many_threads_as_cores() -> None:
    assert threads._threads(2, 2) == threads.DoctorCheck("threads", "PyTorch", "2 for 2 cores")
    assert threads._threads(1, 1).value == "1 for 1 core"


def test_too_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    check = threads._threads(1, 4)
    assert check.status == "note" and "idle" in check.value and check.remedy == "set OMP_NUM_THREADS=4"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    check = threads._threads(1, 4)
    assert "(OMP_NUM_THREADS=1)" in check.value and check.remedy == "unset OMP_NUM_THREADS"


def test_more_threads_than_the_container_may_use() -> None:
    check = threads._threads(64, 4)
    assert check.status == "note" and check.remedy == "set OMP_NUM_THREADS=4"


def test_other_programs_on_the_cores_are_a_note() -> None:
    assert threads._load(0.3, 2).status == "ok"
    check = threads._load(7.9, 2)
    assert check.status == "note" and check.value.startswith("7.9 programs on 2 cores") and "top" in check.remedy
