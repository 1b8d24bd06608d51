"""Processes that form a process group over gloo, and run functions of test modules as its ranks."""

from __future__ import annotations

import gc
import multiprocessing
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

TIMEOUT = 240.0  # seconds that a function may take, and 30 more for each rank, which share the cores


class RankPool:
    """`size` ranks. `run` calls a function of a module on all of them, and returns their results in order.

    The processes start with the first function, and again with the first after `close`.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.timeout = TIMEOUT + 30.0 * size
        self.pipes: list[Any] = []
        self.processes: list[Any] = []

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        for rank in range(self.size):
            mine, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, rank, self.size, port, list(sys.path)), daemon=True)
            process.start()
            self.pipes.append(mine)
            self.processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        if not self.processes:
            self._start()
        for pipe in self.pipes:
            pipe.send((function, arguments))
        results = []
        for rank, pipe in enumerate(self.pipes):
            assert pipe.poll(self.timeout), f"rank {rank} gave no result in {self.timeout:g} s"
            fine, result = pipe.recv()
            assert fine, f"rank {rank}:\n{result}"
            results.append(result)
        return results

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.kill()
        self.pipes, self.processes = [], []


def _work(pipe: Any, rank: int, size: int, port: int, path: list[str]) -> None:
    sys.path[:] = path
    os.fsync = lambda file: None  # as in conftest.py
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    import torch

    torch.set_num_threads(1)
    from qkv.training.parallel.world import World

    world = World.join(torch.device("cpu"), timeout=TIMEOUT / 2 + 15.0 * size)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            break
        _destroy_subgroups()  # now that every rank has returned from the function before
        try:
            pipe.send((True, function(world, *arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
            break
    os._exit(0)


def _destroy_subgroups() -> None:
    """Destroy every process group but the default one. Each has threads, which would add up over hundreds of tests.

    A group's threads live as long as anything refers to it, and wake a hundred times a second.
    """
    import torch.distributed as dist

    gc.collect()  # modules with hooks are in cycles
    gc.freeze()  # what is left, such as imported modules, stays: the next collection need not visit it
    for group in list(dist.distributed_c10d._world.pg_map):
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)
