"""Heartbeats: a rank that hangs is named if no exception tells of it, as with NCCL."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from qkv.training.parallel import heartbeat
from qkv.training.parallel.heartbeat import Heartbeat
from qkv.training.parallel.world import World

# The timeout of the process group is never reached: only the heartbeats can end rank 0.
HANGS = """
import sys, time, torch
from qkv.training.parallel.heartbeat import Heartbeat
from qkv.training.parallel.world import World
world = World.join(torch.device("cpu"), 1000.0)
with Heartbeat(world, 3.0, watches=True):
    world.barrier()
    if world.rank == 1:
        time.sleep(1000)
    world.barrier()
"""


# With and without the watch: gloo raises an exception after the timeout of the group.
STOPS = """
import os, signal, sys, torch
from qkv.training.parallel.heartbeat import Heartbeat, is_communication
from qkv.training.parallel.world import World
watches = sys.argv[1] == "watched"
world = World.join(torch.device("cpu"), 1000.0 if watches else 3.0)
with Heartbeat(world, 3.0, watches=watches) as heartbeat:
    world.barrier()
    if world.rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        world.barrier()
    except RuntimeError as error:
        assert is_communication(error)
        print(heartbeat.lost(error), file=sys.stderr, flush=True)
        os._exit(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["watched", "by gloo"])
def test_the_others_end_when_rank_0_is_stopped_which_has_the_store(how: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    stopped, other = (
        subprocess.Popen(
            [sys.executable, "-c", STOPS, how],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    )
    try:
        _, errors = other.communicate(timeout=60)
    finally:
        stopped.kill()
        stopped.communicate()
        other.kill()
    assert "rank 0 ended, or does not answer any more" in errors and other.returncode == 1


@pytest.mark.slow
def test_a_rank_that_waits_for_ever_names_the_one_that_hangs_and_ends() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    first, hangs = (
        subprocess.Popen(
            [sys.executable, "-c", HANGS],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    )
    try:
        _, errors = first.communicate(timeout=120)
    finally:
        hangs.kill()
        hangs.communicate()
    assert first.returncode == 1
    assert "qkv: rank 1 hangs in <string>:9 (<module>), for which the others wait" in errors


def test_a_rank_is_stuck_that_waits_in_one_place_without_another_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(heartbeat.dist, "TCPStore", lambda *_, **__: None)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    beats = Heartbeat(SimpleNamespace(rank=0), 10.0, watches=True)  # type: ignore[arg-type]

    def stuck(at: float, place: str, waiting: bool) -> bool:
        nonlocal now
        now = at
        return beats._stuck(place, waiting)

    assert not stuck(0, "a", True) and not stuck(9, "a", True) and stuck(11, "a", True)
    assert not stuck(12, "b", True)  # it continued
    assert not stuck(30, "b", False)  # it computes
    monkeypatch.setattr(World, "operations", World.operations + 1)
    assert not stuck(45, "b", True)  # it came back to the same place
    assert stuck(56, "b", True)


@pytest.mark.parametrize(
    ("module", "waits"),
    [
        ("data_parallel/buckets.py", True),
        ("model_parallel/pipeline.py", True),
        ("world.py", True),
        ("team.py", False),  # what a rank computes by itself is called there
        ("../loop.py", False),
    ],
)
def test_a_rank_waits_where_the_modules_of_parallel_training_communicate(module: str, waits: bool) -> None:
    path = (Path(heartbeat.__file__).parent / module).resolve()
    assert path.is_file()
    frames: dict[str, object] = {"sys": sys}
    exec(compile("frame = sys._getframe()", str(path), "exec"), frames)
    frame = SimpleNamespace(f_code=frames["frame"].f_code, f_lineno=1, f_back=None)  # type: ignore[attr-defined]
    assert heartbeat.where(frame)[1] is waits  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", ["finished", "works", "fails", "none"])
def test_a_rank_waits_anywhere_while_its_gpu_does_not_finish(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel can't be started while the queue of a GPU that waits for other ranks is full."""
    asked, end = [], threading.Event()

    def query() -> bool:
        if answer == "none":
            end.wait(60)
        if answer == "fails":
            raise RuntimeError("CUDA error")
        return answer == "finished"

    def stream(device: int) -> SimpleNamespace:
        asked.append(device)
        return SimpleNamespace(query=query)

    monkeypatch.setattr(heartbeat.dist, "TCPStore", lambda *_, **__: None)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setattr(heartbeat, "where", lambda _: ("linear.py:9", False))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "default_stream", stream)
    beats = Heartbeat(SimpleNamespace(rank=0), 0.4, watches=True)  # type: ignore[arg-type]
    assert beats._where()[1] is (answer != "finished") and asked == [3]
    end.set()
