"""OpenMP's threads sleep if cores are shared, and a user's settings stay."""

from __future__ import annotations

import os

import pytest

from qkv.cli import waiting


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in waiting.SET_BY_USER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)


@pytest.mark.parametrize(("running", "shared"), [([1], False), ([2, 3, 2], True), ([2, 1], False)])
def test_shared_if_others_run_at_every_reading(
    monkeypatch: pytest.MonkeyPatch, running: list[int], shared: bool
) -> None:
    readings = iter(running)
    monkeypatch.setattr(waiting, "_running", lambda: next(readings))
    assert waiting.sleep_where_cores_are_shared() == shared
    assert ("GOMP_SPINCOUNT" in os.environ) == shared


@pytest.mark.parametrize(("command", "sleeps"), [("serve", True), ("chat", True), ("train", False), (None, False)])
def test_a_command_with_an_engine_shares_its_cores_with_itself(
    monkeypatch: pytest.MonkeyPatch, command: str | None, sleeps: bool
) -> None:
    monkeypatch.setattr(waiting, "_running", lambda: 1)
    assert waiting.sleep_where_cores_are_shared(command) == sleeps


def test_others_on_cores_that_are_not_ours_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(waiting, "_running", lambda: 3)
    assert not waiting.sleep_where_cores_are_shared()


@pytest.mark.parametrize("name", waiting.SET_BY_USER)
def test_a_setting_of_the_user_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(waiting, "_running", lambda: 9)
    monkeypatch.setenv(name, "7")
    assert not waiting.sleep_where_cores_are_shared()
    assert os.environ[name] == "7"


def test_the_system_says_how_many_run() -> None:
    assert waiting._running() >= 1
