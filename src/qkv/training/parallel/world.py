"""`World`: the ranks of a `torch.distributed` process group, joined from the environment that `torchrun` sets."""

from __future__ import annotations

import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from ...core.ranks import Value
from ...core.spec import brief, counted

RANK, SIZE, LOCAL_RANK = "RANK", "WORLD_SIZE", "LOCAL_RANK"
ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
PATIENCE = 20.0  # seconds after which a rank says that it is waiting for the others
ANSWER = 10.0  # seconds that rank 0's store, once it is reached, has to answer
WATCHDOG = 60.0  # seconds that NCCL's watchdog gives more than `scale.timeout`, so heartbeats name the rank first


def launched() -> bool:
    """Whether this process was started as one of several ranks, by `torchrun` or a launcher that sets the same variables."""
    return _number(SIZE, 1) > 1


def _number(name: str, default: int) -> int:
    """Read an environment variable that the launcher sets. Raises ValueError if it is not a number."""
    value = os.environ.get(name) or str(default)
    if not value.isdecimal():
        raise ValueError(
            f"the environment variable {name} is {brief(value)}, and not a number as torchrun sets it; correct or unset it"
        )
    return int(value)


class Foreign(ValueError):
    """Another program holds the port of rank 0."""


def check_devices(found: Sequence[tuple[str, str]]) -> None:
    """Check that each rank has its own GPU, which NCCL needs. found: the host of each rank, and the identity of its GPU.

    Raises ValueError that names two ranks with the same one.
    """
    first: dict[tuple[str, str], int] = {}
    for rank, device in enumerate(found):
        if first.setdefault(device, rank) != rank:
            raise ValueError(
                f"ranks {first[device]} and {rank} have the same GPU of {device[0]}, and NCCL needs one for each rank; "
                f"start a rank for each GPU, each with its own {LOCAL_RANK}"
            )


class World:
    """The ranks of a process group, by default of all ranks, see `core.ranks.Ranks`.

    Tensors on a CPU travel over gloo, those on a GPU over NCCL. Groups of some GPUs have NCCL only, and can't call `max`
    and `barrier`.

    timeout: after which an operation of any group fails; None is PyTorch's. operations: how many this process has begun.
    """

    timeout: ClassVar[timedelta | None] = None
    operations: ClassVar[int] = 0
    on_gpus: ClassVar[bool] = False  # whether this process has joined others over NCCL, and not left

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    @classmethod
    def join(cls, device: torch.device, timeout: float) -> World:
        """Join the process group that the environment describes.

        timeout: seconds after which an operation that another rank does not join fails.

        Raises ValueError if the environment is incomplete or the other ranks can't be reached.
        """
        missing = [name for name in (RANK, SIZE, ADDRESS, PORT) if name not in os.environ]
        if missing:
            raise ValueError(
                f"{SIZE} is set but {missing[0]} is not; start the ranks with `qkv train … --nproc N` or with torchrun"
            )
        rank, size, _ = (_number(name, 0) for name in (RANK, SIZE, PORT))
        if rank >= size:
            raise ValueError(f"{RANK} is {rank} and {SIZE} is {size}; ranks are numbered from 0 to {size - 1}")
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"several ranks need CPUs or CUDA devices, not {device.type}; give --device cpu")
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
        at = f"{os.environ[ADDRESS]}:{os.environ[PORT]}"
        cls.timeout = timedelta(seconds=timeout + (WATCHDOG if device.type == "cuda" else 0.0))
        waits = threading.Timer(PATIENCE, _say_that_it_waits, (at, timeout))
        waits.daemon = True
        waits.start()
        try:
            if rank or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
                _check_store(os.environ[ADDRESS], int(os.environ[PORT]), timeout)
            dist.init_process_group(backend, timeout=cls.timeout)
        except (dist.DistError, RuntimeError, OSError, ValueError) as error:
            what = " ".join(str(error).split())[:200]
            if isinstance(error, Foreign):
                raise
            if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
                raise ValueError(
                    f"rank 0 can't use the port {os.environ[PORT]}, which another program holds; give another {PORT}"
                ) from None
            raise ValueError(
                f"rank {os.environ[RANK]} of {os.environ[SIZE]} could not meet the others at {at} within {timeout:g} s "
                f"({what}); check that {ADDRESS} and {PORT} belong to rank 0, that every rank was started, and that no "
                "firewall is between them"
            ) from None
        finally:
            waits.cancel()
        ranks = cls()
        if device.type == "cuda":
            cls.on_gpus = True
            check_devices(ranks.gather((platform.node(), str(torch.cuda.get_device_properties(device).uuid))))
            ranks.connect(device)
        return ranks

    def connect(self, device: torch.device) -> None:
        """Connect the GPUs of all ranks, which NCCL does in the first operation. Raises ValueError if it can't."""
        try:
            self.sum(torch.zeros(1, device=device)).tolist()
        except RuntimeError as error:
            what = " ".join(str(error).split())[:200]
            raise ValueError(
                f"NCCL can't connect the GPUs of the ranks ({what}); set NCCL_DEBUG=INFO to see why, or train on CPUs with "
                "--device cpu"
            ) from None

    @staticmethod
    def device(device: torch.device) -> torch.device:
        """The device of this rank: each local rank has its own GPU. Raises ValueError if there is none left for it."""
        if device.type != "cuda" or device.index is not None:
            return device
        index, gpus = _number(LOCAL_RANK, 0), torch.cuda.device_count()
        if index >= gpus:
            raise ValueError(
                f"{LOCAL_RANK} is {index}, and this process sees {counted(gpus, 'GPU')}; start a rank for each GPU, or set "
                f"{LOCAL_RANK} to 0 if each rank sees only its own"
            )
        return torch.device("cuda", index)

    def sum(self, value: Tensor) -> Tensor:
        World.operations += 1
        total = value.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.group)
        return total

    def sum_with_gradient(self, value: Tensor) -> Tensor:
        summed: Tensor = _Sum.apply(value, self)
        return summed

    def max(self, values: Sequence[float]) -> list[float]:
        World.operations += 1
        numbers = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self.group)
        return numbers.tolist()

    def gather(self, value: Value) -> list[Value]:
        World.operations += 1
        values = [value] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def broadcast(self, value: Value) -> Value:
        World.operations += 1
        values = [value]
        dist.broadcast_object_list(values, group=self.group, group_src=0)
        return values[0]

    def barrier(self) -> None:
        World.operations += 1
        dist.all_reduce(torch.zeros(()), group=self.group)  # on the CPU, unlike `dist.barrier`, which would take a GPU

    def leave(self) -> None:
        """Leave the process group. The object can't be used afterwards."""
        dist.destroy_process_group()
        World.on_gpus = False

    @classmethod
    def end_failed(cls, status: int) -> None:
        """End this process at once if it failed among others on GPUs. Python's usual end would destroy NCCL's groups, which
        waits for operations that the other ranks don't complete any more."""
        if cls.on_gpus:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError, AttributeError):  # closed, or none
                    stream.flush()
            os._exit(status)


def _check_store(address: str, port: int, timeout: float) -> None:
    """Wait until something listens at the address, and see whether it is PyTorch's store. PyTorch itself would wait for an
    answer for ever. Raises Foreign if it is not, OSError if nothing listens within the timeout."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((address, port), timeout=5.0).close()
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    answers: list[object] = []
    patience = timedelta(seconds=ANSWER)

    def ask() -> None:
        with suppress(dist.DistError, RuntimeError):
            answers.append(dist.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=patience))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER)
    if not answers:
        raise Foreign(
            f"another program answers at {address}:{port}, and not rank 0; give the address of rank 0 as {ADDRESS}, and a "
            f"free port there as {PORT}"
        )


def _say_that_it_waits(at: str, timeout: float) -> None:
    who = f"rank {os.environ[RANK]} of {os.environ[SIZE]}"
    text = f"qkv: {who} waits for the others at {at}, up to {timeout:g} s (scale.timeout)"
    print(text, file=sys.stderr, flush=True)


class _Sum(torch.autograd.Function):
    """The sum over ranks, whose gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, ranks: World) -> Tensor:
        ctx.ranks = ranks
        return ranks.sum(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.sum(gradient), None
