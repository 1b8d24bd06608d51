"""`Team`: the ranks that train a run together, their devices, and how the model is distributed over them."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, TypeVar

import torch
from torch import nn

from ...core.ranks import ALONE, Ranks
from ...core.spec import brief
from ...data.batching.sharding import Shard
from ...nn.models.initialization import Values
from ..strategy import Strategy
from .heartbeat import Heartbeat, is_communication
from .launch import end_with_launcher
from .mesh import Mesh
from .scale import AXES, ROW_AXES, Scale, Sizes
from .world import World, launched

Result = TypeVar("Result")


class RankError(ValueError):
    """An error that every rank raises.

    said_by_rank_0: rank 0 shows it, so this rank does not.
    of_rank:        the rank that met it, if only one did.
    """

    def __init__(self, message: str, said_by_rank_0: bool, of_rank: int | None = None) -> None:
        super().__init__(message)
        self.said_by_rank_0, self.of_rank = said_by_rank_0, of_rank


@dataclass(frozen=True)
class Team:
    """The ranks of a training, seen from one of them.

    in_parts: evaluations gather one block of a model at a time, and not the whole model (ZeRO 3).
    """

    ranks: Ranks
    device: torch.device
    scale: Scale
    sizes: Sizes
    in_parts: bool = False

    @classmethod
    def alone(cls, device: torch.device) -> Team:
        """The team of a process that trains by itself."""
        return cls(ALONE, device, Scale(), Sizes())

    def laid_out(self, scale: Scale, in_parts: bool = False) -> Team:
        """The same ranks in another layout."""
        return Team(self.ranks, self.device, scale, scale.sizes(self.ranks.size), in_parts)

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which prints and writes."""
        return self.ranks.rank == 0

    @property
    def divides(self) -> bool:
        """Whether ranks have parts of the model."""
        return self.scale.stage == 3 or self.sizes.of("pipeline", "expert", "tensor") > 1

    @cached_property
    def mesh(self) -> Mesh:
        """The ranks in their axes."""
        return Mesh(self.ranks, self.sizes, self.device)

    @property
    def shard(self) -> Shard:
        """Which rows of every batch this rank computes."""
        return Shard(self.mesh.index(*ROW_AXES), self.mesh.size(*ROW_AXES))

    def distribute(self, model: nn.Module, values: Values | None = None) -> Strategy:
        """Distribute a model over the ranks. Raises ValueError if it can't be divided so.

        values: of its parameters, if these are on the meta device (`models.build.outline`).
        """
        if self.ranks.size == 1:
            return Strategy(model, self.ranks)
        from .model_parallel.model import divided

        division = divided(model, self.mesh, self.scale)
        if self.scale.stage == 3:
            from .data_parallel.fully_sharded import FullySharded

            return FullySharded(model, self.mesh, division, values, self.in_parts)
        from .data_parallel.replicated import Replicated

        strategy = Replicated(model, self.mesh, division, self.scale.stage)
        if values is not None:
            strategy.fill(values)
        return strategy

    def together(self, act: Callable[[], Result]) -> Result:
        """Act on every rank. If one raises an exception, raise ValueError on all, so none waits for another."""
        if self.ranks.size == 1:
            return act()
        error: Exception | None = None
        try:
            result = act()
        except Exception as raised:
            error = raised
        errors = self.ranks.gather(None if error is None else f"{error}" or type(error).__name__)
        failed = [rank for rank, text in enumerate(errors) if text is not None]
        if not failed:
            return result
        if self.leads and error is not None:
            raise error
        raise RankError(f"rank {failed[0]}: {errors[failed[0]]}", not self.leads, failed[0]) from error

    def compare(self, values: dict[str, Any]) -> None:
        """Compare what has to be the same on every rank. Raises ValueError that names the first difference."""
        own = {"Python": platform.python_version(), "PyTorch": torch.__version__, "qkv": version("qkv"), **values}
        everyone = self.ranks.gather(own)
        for rank, theirs in enumerate(everyone):
            for name, mine, other in _differences(everyone[0], theirs):
                message = (
                    f"the ranks don't agree: {name} is {brief(mine)} on rank 0 and {brief(other)} on rank {rank}; start all "
                    "with the same versions and the same command"
                )
                raise RankError(message, not self.leads)


def _differences(one: Any, other: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The names of settings that differ in two trees, and their values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            yield from _differences(one.get(key), other.get(key), f"{name}.{key}" if name else str(key))
    elif one != other:
        yield name, one, other


@contextmanager
def team(scale: Scale, device: torch.device) -> Iterator[Team]:
    """Join the other ranks, if this process was started as one of several.

    Raises ValueError if the ranks don't fit the mesh, or can't be reached, and RankLost if one is lost inside the block.
    """
    if not launched():
        if scale.at_least > 1:
            axes = " ".join(f"scale.{axis}={n}" for axis in AXES if (n := getattr(scale, axis) or 1) > 1)
            raise ValueError(
                f"{axes} needs {scale.at_least} ranks, and this is one process; start them with --nproc {scale.at_least} or "
                "with torchrun, or give scale={} to train in one process"
            )
        yield Team.alone(device)
        return
    end_with_launcher()
    device = World.device(device)
    ranks = World.join(device, scale.timeout)
    with Heartbeat(ranks, scale.timeout, watches=device.type == "cuda") as heartbeat:
        try:
            yield Team(ranks, device, scale, scale.sizes(ranks.size))
        except RuntimeError as error:
            if is_communication(error):
                raise heartbeat.lost(error) from error
            raise
        else:
            ranks.barrier()  # rank 0 has the store that the others need, so it leaves last
    ranks.leave()
