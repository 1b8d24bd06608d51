"""`Scale`: a recipe's block that distributes training over ranks."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from ...core.spec import Spec, brief, counted
from ...nn.cost.plan.rules import ContextAttention, PipelineSchedule, check_schedule, check_zero
from ..settings import read_seconds

Count = Annotated[int, Field(ge=1)]
Stage = Literal[0, 1, 2, 3]
Axis = Literal["pipeline", "data", "shard", "expert", "context", "tensor"]

AXES: tuple[Axis, ...] = ("pipeline", "data", "shard", "expert", "context", "tensor")
STAGE_AXES = AXES[1:]  # over ranks that differ in these, the same layers are computed
ROW_AXES: tuple[Axis, ...] = ("data", "shard", "expert")  # ranks that differ in these compute different rows of a batch
EXAMPLES = 8  # meshes that a message names


class Sizes(NamedTuple):
    """How many ranks each axis of the mesh has. Ranks that differ in the last axis have consecutive numbers."""

    pipeline: int = 1
    data: int = 1
    shard: int = 1
    expert: int = 1
    context: int = 1
    tensor: int = 1

    @property
    def ranks(self) -> int:
        return math.prod(self)

    def of(self, *axes: Axis) -> int:
        """How many ranks some of the axes have together."""
        return math.prod(getattr(self, axis) for axis in axes)


class Scale(Spec):
    """How training is distributed over ranks (processes, each with its own device).

    data:     replicas of the model, each of which computes a part of every batch. None: as many as the other axes leave.
    shard:    ranks over which each replica's training state is divided; each of them computes a part of the batch too.
    zero:     what is divided over the `shard` ranks (ZeRO, Rajbhandari et al. 2020): 1 the optimizer's state, 2 gradients
              too, 3 parameters too (FSDP). 0 for shard=1, and 3 by default otherwise.
    tensor:   ranks over which heads, neurons and the vocabulary are divided (Shoeybi et al. 2019), and the tokens between
              those layers (Korthikanti et al. 2022).
    context:  ranks over which the tokens of a sequence are divided. `context_attention` is how queries reach the keys of
              other ranks: "ring" (Liu et al. 2023), "all-to-all" (DeepSpeed Ulysses, Jacobs et al. 2023), or "all-gather"
              (Dubey et al. 2024, §3.3.2).
    expert:   ranks over which the experts of mixtures are divided; each of them computes a part of the batch too.
    pipeline: ranks over which the layers are divided. The batches of a step, `training.accumulate` of them, are the
              microbatches. `pipeline_schedule` is "1f1b" (Narayanan et al. 2019), "gpipe" (Huang et al. 2019),
              "interleaved-1f1b", with two stages on each rank (Narayanan et al. 2021), or "zb-h1", which computes gradients
              of weights while ranks would be idle (Qi et al. 2023).
    auto:     the planner chooses the axes for the number of ranks: `scale: auto`. No axis may be given then.
    timeout:  seconds, or "10m": if a rank does not answer for this long, training ends.

    The product of the axes is the number of ranks. The batches of a step are the same on any number of ranks.
    """

    data: Count | None = None
    shard: Count = 1
    zero: Stage | None = None
    tensor: Count = 1
    context: Count = 1
    context_attention: ContextAttention = "ring"
    expert: Count = 1
    pipeline: Count = 1
    pipeline_schedule: PipelineSchedule = "1f1b"
    auto: bool = False
    timeout: Annotated[float, BeforeValidator(read_seconds), Field(gt=0)] = 600.0

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        if isinstance(given, str):
            given = {"kind": given}
        if not isinstance(given, dict) or "kind" not in given:
            return given
        if given["kind"] != "auto":  # a bare name arrives as a kind, see `Spec`
            raise ValueError(f"it is auto, or settings such as {{shard: 2}}, not {brief(given['kind'])}")
        return {**{name: value for name, value in given.items() if name != "kind"}, "auto": True}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.auto and (named := next((axis for axis in AXES if getattr(self, axis) not in (None, 1)), None)):
            raise ValueError(
                f"auto chooses {named} too, and {named}={getattr(self, named)} is given; leave out one of the two"
            )
        check_zero(self.zero, self.shard)
        check_schedule(self.pipeline_schedule, self.pipeline, self.stage)
        return self

    @property
    def stage(self) -> Stage:
        """The stage of ZeRO."""
        return (3 if self.shard > 1 else 0) if self.zero is None else self.zero

    @property
    def at_least(self) -> int:
        """The smallest number of ranks that the axes need."""
        return Sizes(self.pipeline, self.data or 1, self.shard, self.expert, self.context, self.tensor).ranks

    def sizes(self, ranks: int) -> Sizes:
        """The mesh for a number of ranks. Raises ValueError if they don't fit, with meshes that do."""
        others = Sizes(self.pipeline, 1, self.shard, self.expert, self.context, self.tensor)
        sizes = others._replace(data=ranks // others.ranks if self.data is None else self.data)
        if sizes.ranks == ranks:
            return sizes
        axes = [
            axis
            for axis in ("data", "shard", *AXES[3:], "pipeline")
            if axis in ("data", "shard") or others.of(axis) > 1
        ]
        fits = ", ".join(" × ".join(map(str, mesh)) for mesh in meshes(ranks, len(axes))[:EXAMPLES])
        named = axes if self.data is not None else axes[1:]
        values = " × ".join(str(sizes.of(axis)) for axis in named)
        product = f" = {math.prod(sizes.of(axis) for axis in named)}" if len(named) > 1 else ""
        given = f"{' × '.join(named)} = {values}{product}" if len(named) > 1 else f"{named[0]}={values}"
        raise ValueError(f"scale: {given} does not fit {counted(ranks, 'rank')}; {' × '.join(axes)} can be {fits}")


def meshes(ranks: int, axes: int) -> list[tuple[int, ...]]:
    """All sizes of a number of axes whose product is the number of ranks, with large first axes first."""
    if axes == 1:
        return [(ranks,)]
    divisors = [n for n in range(ranks, 0, -1) if ranks % n == 0]
    return [(n, *rest) for n in divisors for rest in meshes(ranks // n, axes - 1)]
