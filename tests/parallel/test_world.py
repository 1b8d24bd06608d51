"""Joining the process group that the environment describes, and what is said where it can't be joined."""

from __future__ import annotations

import pytest
import torch

from qkv.parallel import world
from qkv.parallel.world import World, launched

TWO = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in TWO.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"RANK": "2"}, "RANK is 2 and WORLD_SIZE is 2; ranks are numbered from 0 to 1"),
        ({"RANK": "one"}, "the environment variable RANK is 'one', and not a number"),
        ({"MASTER_PORT": "http"}, "the environment variable MASTER_PORT is 'http', and not a number"),
        ({"MASTER_ADDR": None}, "WORLD_SIZE is set but MASTER_ADDR is not"),
    ],
)
def test_a_wrong_environment_is_told_at_once(
    environment: pytest.MonkeyPatch, changed: dict[str, str | None], message: str
) -> None:
    for name, value in changed.items():
        environment.delenv(name) if value is None else environment.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        World.join(torch.device("cpu"), 5.0)


def test_a_world_of_a_wrong_size_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ValueError, match="WORLD_SIZE is 'two'"):
        launched()


def test_a_rank_that_waits_says_so_and_gives_up_with_the_address(
    environment: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    environment.setattr(world, "PATIENCE", 0.2)
    with pytest.raises(
        ValueError, match=r"rank 1 of 2 could not meet the others at 127.0.0.1:9 within 1 s .* check that"
    ):
        World.join(torch.device("cpu"), 1.0)
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("qkv:")]
    assert said == ["qkv: rank 1 of 2 waits for the others at 127.0.0.1:9, up to 1 s (scale.timeout)"]
    assert not torch.distributed.is_initialized()
