"""Joining the process group that the environment describes, and what is said if it can't be joined."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from qkv.cli import main
from qkv.training.parallel import world
from qkv.training.parallel.world import World, launched

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


@pytest.fixture
def foreign(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a program that answers each message with `param`, or not at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connections = []
            while True:
                try:
                    connections.append(server.accept()[0])
                    if request.param:
                        connections[-1].sendall(request.param)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize("foreign", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], indirect=True, ids=["silent", "HTTP"])
def test_another_program_on_the_port_of_rank_0_is_recognized(environment: pytest.MonkeyPatch, foreign: int) -> None:
    environment.setenv("MASTER_PORT", str(foreign))
    environment.setattr(world, "ANSWER", 0.3)
    with pytest.raises(ValueError, match=rf"another program answers at 127.0.0.1:{foreign}, and not rank 0; give"):
        World.join(torch.device("cpu"), 60.0)
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("foreign", [b""], indirect=True, ids=[""])
def test_a_port_that_another_program_holds_is_told_on_rank_0(environment: pytest.MonkeyPatch, foreign: int) -> None:
    environment.setenv("MASTER_PORT", str(foreign))
    environment.setenv("RANK", "0")
    with pytest.raises(ValueError, match=rf"rank 0 can't use the port {foreign}, which another program holds"):
        World.join(torch.device("cpu"), 5.0)
    assert not torch.distributed.is_initialized()


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


def test_a_rank_without_its_own_gpu_is_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="LOCAL_RANK is 1, and this process sees 1 GPU; start a rank for each GPU"):
        World.device(torch.device("cuda"))
    environment.setenv("LOCAL_RANK", "0")
    assert World.device(torch.device("cuda")) == torch.device("cuda", 0)


def test_two_ranks_on_one_gpu_are_named() -> None:
    world.check_devices([("a", "1"), ("a", "2"), ("b", "1")])
    with pytest.raises(ValueError, match="ranks 0 and 2 have the same GPU of a, and NCCL needs one for each rank"):
        world.check_devices([("a", "1"), ("a", "2"), ("a", "1")])


def test_gpus_that_nccl_cannot_connect_are_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise dist.DistBackendError(
            "NCCL error in: NCCLUtils.cpp:77, unhandled system error\nLast error:\nno interface"
        )

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        monkeypatch.setattr(dist, "all_reduce", fail)
        with pytest.raises(
            ValueError, match=r"NCCL can't connect the GPUs of the ranks \(NCCL error .* no interface\)"
        ):
            World().connect(torch.device("cpu"))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("on_gpus", [True, False])
def test_a_failed_rank_on_a_gpu_ends_without_destroying_groups(
    on_gpus: bool, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NCCL would wait for the other ranks, which wait for this one."""
    ended: list[int] = []
    environment.setattr(World, "on_gpus", on_gpus)
    environment.setattr(os, "_exit", ended.append)
    assert main(["train", "--no-such-option"]) == 2
    assert ended == [2] * on_gpus and "--no-such-option" in capsys.readouterr().err
