"""`Scale`: a recipe's block that distributes training over ranks."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from ..core.spec import Spec, counted
from ..training.settings import read_seconds

Count = Annotated[int, Field(ge=1)]
Stage = Literal[0, 1, 2, 3]


class Sizes(NamedTuple):
    """How many ranks each axis of the mesh has."""

    data: int
    shard: int

    @property
    def ranks(self) -> int:
        return math.prod(self)


class Scale(Spec):
    """How training is distributed over ranks (processes, each with a device of its own).

    data:    replicas of the model, each of which computes a part of every batch. None: as many as the other axes leave.
    shard:   ranks over which each replica's training state is divided; each of them computes a part of the batch too.
    zero:    what is divided over the `shard` ranks (ZeRO, Rajbhandari et al. 2020): 1 the optimizer's state, 2 gradients
             too, 3 parameters too (FSDP). 0 for shard=1, and 3 by default otherwise.
    timeout: seconds, or "10m": a rank that is not heard of for so long is given up, and the training ends.

    data · shard is the number of ranks. The batches of a step are the same on any number of ranks: every one is divided.
    """

    data: Count | None = None
    shard: Count = 1
    zero: Stage | None = None
    timeout: Annotated[float, BeforeValidator(read_seconds), Field(gt=0)] = 600.0

    @model_validator(mode="before")
    @classmethod
    def _later(cls, value: Any) -> Any:
        """Name the axes that are not there yet."""
        if isinstance(value, dict):
            for axis in ("tensor", "pipeline", "context", "expert"):
                if value.get(axis, 1) == 1:
                    value = {key: item for key, item in value.items() if key != axis}
                else:
                    raise ValueError(
                        f"{axis} parallelism is not implemented yet; leave out {axis}, and use data and shard"
                    )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.zero and self.shard == 1:
            raise ValueError(
                f"zero={self.zero} divides over `shard` ranks, and shard is 1; raise shard, or leave out zero"
            )
        if self.zero == 0 and self.shard > 1:
            raise ValueError(
                f"shard={self.shard} divides nothing with zero=0; give zero=1, 2 or 3, or raise data instead"
            )
        return self

    @property
    def stage(self) -> Stage:
        """The stage of ZeRO."""
        return (3 if self.shard > 1 else 0) if self.zero is None else self.zero

    def sizes(self, ranks: int) -> Sizes:
        """The mesh for a number of ranks. Raises ValueError if they don't fit, with meshes that do."""
        data = ranks // self.shard if self.data is None else self.data
        if data * self.shard == ranks and data:
            return Sizes(data, self.shard)
        fits = ", ".join(f"{ranks // n} × {n}" for n in range(1, ranks + 1) if ranks % n == 0)
        given = f"data × shard = {data} × {self.shard} = {data * self.shard}" if self.data else f"shard={self.shard}"
        raise ValueError(f"scale: {given} does not fit {counted(ranks, 'rank')}; data × shard can be {fits}")
