"""Groups of processes that take training steps when told to, and otherwise wait without using a core."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from qkv.cli.allocator import bound_kernels, keep_pages

STEPS = 3  # of one reading; the first is not counted, unless it is the only one


@dataclass(frozen=True)
class Way:
    """A way to train: so many ranks of so many threads, with a recipe's `scale`.

    launched: whether the processes have the variables that torchrun sets.
    """

    name: str
    ranks: int
    threads: int
    scale: tuple[tuple[str, int], ...] = ()
    launched: bool = True


@dataclass(frozen=True)
class Shape:
    """A decoder, and the batch that all ranks take together."""

    name: str
    d_model: int
    n_layers: int
    vocab_size: int
    context: int
    rows: int
    heads: int = 8

    @property
    def tokens(self) -> int:
        return self.rows * self.context


class Group:
    """The processes of one way. `take` gives the seconds of a step."""

    def __init__(self, way: Way, shape: Shape) -> None:
        context = multiprocessing.get_context("spawn")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.pipes, self.processes = [], []
        for rank in range(way.ranks):
            mine, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, way, shape, rank, port), daemon=True)
            process.start()
            self.pipes.append(mine)
            self.processes.append(process)

    def take(self, steps: int = STEPS) -> dict[str, Any]:
        """Take steps. Returns the median time of one, the loss, and the tensors' bytes of each rank."""
        for pipe in self.pipes:
            pipe.send(steps)
        answers = [pipe.recv() for pipe in self.pipes]
        return {**answers[0], "bytes": [answer["bytes"] for answer in answers]}

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(10)


def _work(pipe: Any, way: Way, shape: Shape, rank: int, port: int) -> None:
    bound_kernels()  # as the command line does
    keep_pages()
    os.environ |= {"OMP_NUM_THREADS": str(way.threads)}
    if way.launched:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(way.ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    from statistics import median

    import torch

    torch.set_num_threads(way.threads)
    from .training import Steps

    steps = Steps(way, shape)
    while True:
        try:
            n = pipe.recv()
        except EOFError:
            return
        times, loss = [], 0.0
        for _ in range(n):
            began = time.perf_counter()
            loss = steps.take()
            times.append(time.perf_counter() - began)
        pipe.send({"seconds": median(times[1:] or times), "loss": loss, "bytes": steps.state_bytes()})
