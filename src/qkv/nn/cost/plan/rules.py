"""Checks of a layout: which sizes of the axes of `scale` a model allows, and which settings work together.

The training (`parallel`) and the planner call the same functions, so the planner only proposes layouts that can be trained.
Every check raises ValueError with what was given, what is allowed and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ....core.spec import brief

PipelineSchedule = Literal["1f1b", "gpipe", "interleaved-1f1b", "zb-h1"]
ContextAttention = Literal["ring", "all-to-all", "all-gather"]

CHUNKS = 2  # stages of a rank in the interleaved schedule


@dataclass(frozen=True)
class TrainedBy:
    """What trains a model, as far as layouts depend on it.

    optimizer: its kind, and whether it is `elementwise`, so parts of parameters can be updated by themselves.
    objective: its kind, and whether it takes a `single_pass` forward for each batch.
    """

    optimizer: str = "adamw"
    elementwise: bool = True
    objective: str = "next-token"
    single_pass: bool = True


def chunks_of(schedule: PipelineSchedule) -> int:
    """Return how many stages each rank has."""
    return CHUNKS if schedule == "interleaved-1f1b" else 1


def divisors(number: int) -> list[int]:
    """Return the divisors of a number in increasing order."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def check_zero(zero: int | None, shard: int) -> None:
    """Check that a stage of ZeRO has ranks to shard over, and that `shard` ranks have a stage."""
    if zero and shard == 1:
        raise ValueError(f"zero={zero} divides over `shard` ranks, and shard is 1; raise shard, or leave out zero")
    if zero == 0 and shard > 1:
        raise ValueError(f"shard={shard} divides nothing with zero=0; give zero=1, 2 or 3, or raise data instead")


def check_schedule(schedule: PipelineSchedule, pipeline: int, zero: int) -> None:
    """Check that a pipeline schedule works with a stage of ZeRO."""
    if zero == 3 and schedule == "zb-h1" and pipeline > 1:
        raise ValueError(
            "pipeline_schedule=zb-h1 computes gradients of weights after zero=3 has summed a layer's gradients; give "
            "zero=2 or 1, or pipeline_schedule=1f1b"
        )


def check_microbatches(schedule: PipelineSchedule, pipeline: int, microbatches: int) -> None:
    """Check that the interleaved schedule can divide the microbatches into groups of one per rank."""
    if schedule == "interleaved-1f1b" and microbatches % pipeline:
        allowed = f"{pipeline}, {2 * pipeline}, {3 * pipeline} …"
        raise ValueError(
            f"the schedule interleaved-1f1b of {pipeline} ranks needs groups of {pipeline} microbatches, and a step has "
            f"{microbatches}; training.accumulate can be {allowed}"
        )


def check_layers(pipeline: int, schedule: PipelineSchedule, layers: int) -> None:
    """Check that every stage gets at least one layer."""
    each = chunks_of(schedule)
    if pipeline > 1 and layers < pipeline * each:
        what = f"scale.pipeline={pipeline}" + (f" with {each} stages each" if each > 1 else "")
        raise ValueError(f"{what} is more than the {layers} layers of this model; it can be 1 to {layers // each}")


def check_stacks(pipeline: int, model: str, transformer: bool, reversible: bool) -> None:
    """Check that a model's layers can be divided into stages."""
    if pipeline > 1 and not transformer:
        raise ValueError(
            f"scale.pipeline divides the layers of Transformers, and this model is a {model}; use other axes"
        )
    if pipeline > 1 and reversible:
        raise ValueError("scale.pipeline can't divide reversible layers; choose another placement, or use other axes")


def check_tokens(tensor: int, context: int, model: str, stacks: bool, drops_path: bool) -> None:
    """Check that tensor and context parallelism can divide the tokens of a model."""
    if tensor * context == 1:
        return
    axis = "context" if context > 1 else "tensor"
    if not stacks:
        raise ValueError(f"scale.{axis} divides Transformers, and this model is a {model}; use data and shard")
    if drops_path:
        raise ValueError(
            f"scale.{axis} divides the tokens of a sequence, which stochastic depth drops together; set drop_path to 0"
        )


def check_media(tensor: int, context: int, pipeline: int, joint: bool) -> None:
    """Check that no axis divides a model that reads media beside tokens."""
    sizes = {"tensor": tensor, "context": context, "pipeline": pipeline}
    axis = next((name for name, size in sizes.items() if size > 1), None)
    if joint and axis is not None:
        raise ValueError(f"scale.{axis} can't divide a model that reads media beside tokens; use data and shard")


def check_heads(tensor: int, heads: int, kv_heads: int, name: str) -> None:
    """Check that `tensor` divides the heads, and that it divides the key-value heads or is a multiple of their number."""
    allowed = [n for n in divisors(heads) if kv_heads % n == 0 or n % kv_heads == 0]
    if tensor not in allowed:
        what = f"the {heads} heads" if kv_heads == heads else f"the {heads} heads and {kv_heads} key-value heads"
        raise ValueError(
            f"scale.tensor={tensor} does not divide {what} of {name}; it can be {', '.join(map(str, allowed))}"
        )


def check_experts(expert: int, experts: dict[str, int]) -> None:
    """Check that the number of `expert` ranks divides every mixture's experts, given by the mixture's name."""
    if expert == 1:
        return
    if not experts:
        raise ValueError(
            f"scale.expert={expert} divides the experts of mixtures, and this model has none; leave it out, or give a "
            "feed-forward layer of kind moe"
        )
    for name, n in experts.items():
        if n % expert:
            allowed = ", ".join(map(str, divisors(n)))
            raise ValueError(f"scale.expert={expert} does not divide the experts of {name}, {n}; it can be {allowed}")


def check_optimizer(zero: int, kind: str, elementwise: bool) -> None:
    """Check that an optimizer works with stage 3 of ZeRO, which shards parameters."""
    if zero == 3 and not elementwise:
        raise ValueError(
            f"the optimizer {brief(kind)} needs whole parameters, and zero=3 divides them; give scale.zero=2, or an "
            "element-wise optimizer such as adamw"
        )


def check_objective(pipeline: int, kind: str, single_pass: bool) -> None:
    """Check that an objective works with a pipeline, which runs one forward pass for each batch."""
    if pipeline > 1 and not single_pass:
        raise ValueError(
            f"scale.pipeline needs an objective with one forward pass for each batch, which {brief(kind)} may not have; use "
            "other axes"
        )
