"""Time of a training step of a layout: computation, communication that is hidden and exposed, and the pipeline's bubble.

A microbatch takes a rank, for each of its layers,

    products / (share · peak)  +  scores / (share · peak)  +  bytes of element-wise kernels / (share · bandwidth)

in forward, twice that in backward (5/2 for the scores of fused attention), and again what is recomputed. On top come what
tensor, context and expert parallelism exchange inside layers, the sends of a pipeline, and its bubble (`bubbles.py`). Sums
of gradients and the gathering of ZeRO 3 overlap with computation, except for the first gathering and the last sum.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from ..accelerators import Accelerator
from .bubbles import bubble
from .communication import RankGroup
from .context import exchanged, method_of
from .execution import Execution, Kernels
from .layout import RankLayout
from .network import Network
from .work import LayerWork, ModelWork

ADAMW_BYTES = 28  # of a parameter: weight, gradient and two moments read, weight and moments written, in fp32


@dataclass(frozen=True)
class Machine:
    """The devices of a training, what joins them, and how it runs on them."""

    device: Accelerator
    network: Network
    kernels: Kernels
    how: Execution

    def group(self, layout: RankLayout, axis: str) -> RankGroup:
        return RankGroup(self.network, layout.size(axis), layout.stride(axis))

    @property
    def precision(self) -> str:
        return "bf16" if self.how.width == 2 else "fp32"


@dataclass(frozen=True)
class Communication:
    """Seconds of a step that a kind of communication takes, and how many of them nothing is computed in."""

    kind: str
    seconds: float
    exposed: float

    @property
    def hidden(self) -> float:
        return self.seconds - self.exposed


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of a training step, by part.

    compute: of the dearest stage, by kind of kernel. bubble: in which it waits for others. tokens: of a step, on all ranks.
    """

    compute: dict[str, float]
    communication: tuple[Communication, ...]
    bubble: float
    tokens: float
    ranks: int
    flops: float
    peak: float
    limits: dict[str, float] = field(default_factory=dict)

    @property
    def computing(self) -> float:
        return sum(self.compute.values())

    @property
    def exposed(self) -> float:
        return sum(one.exposed for one in self.communication)

    @property
    def seconds(self) -> float:
        return self.computing + self.exposed + self.bubble

    @property
    def tokens_per_second(self) -> float:
        """Of one rank."""
        return self.tokens / self.ranks / self.seconds

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: FLOPs without recomputation, of the peak of all ranks."""
        return self.flops / (self.seconds * self.ranks * self.peak)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of each part of a step: kernels, communication that is not hidden, and the pipeline bubble."""
        names = {"shard": "ZeRO", "data": "gradient"}
        sent = {f"{names.get(one.kind, one.kind)} communication": one.exposed for one in self.communication}
        return {**self.compute, **sent, **({"pipeline bubble": self.bubble} if self.bubble else {})}

    @property
    def waiting(self) -> float:
        """Fraction of a step in which a rank computes nothing."""
        return 1 - self.computing / self.seconds

    @property
    def waits_for(self) -> str:
        """Name of the part that a rank waits for longest, or an empty string if it never waits."""
        waits = {name: size for name, size in self.parts.items() if name not in self.compute and size}
        return max(waits, key=lambda name: waits[name], default="")

    @property
    def bound(self) -> str:
        """The part that takes the most time."""
        return max(self.parts, key=lambda name: self.parts[name])

    def to_dict(self) -> dict[str, Any]:
        whole = asdict(self)
        del whole["limits"]
        shown = {name: getattr(self, name) for name in ("seconds", "tokens_per_second", "mfu", "bound", "waiting")}
        return whole | shown


@dataclass
class _Times:
    """Seconds of some layers for one microbatch: of kernels in forward and backward, and of what is exchanged inside."""

    products: tuple[float, float] = (0.0, 0.0)
    scores: tuple[float, float] = (0.0, 0.0)
    elements: tuple[float, float] = (0.0, 0.0)
    tensor: float = 0.0
    context: float = 0.0
    context_exposed: float = 0.0
    expert: float = 0.0

    @property
    def forward(self) -> float:
        return self.products[0] + self.scores[0] + self.elements[0]

    @property
    def backward(self) -> float:
        return self.products[1] + self.scores[1] + self.elements[1]

    def plus(self, other: _Times, times: int = 1) -> _Times:
        def both(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
            return a[0] + times * b[0], a[1] + times * b[1]

        return _Times(
            both(self.products, other.products),
            both(self.scores, other.scores),
            both(self.elements, other.elements),
            self.tensor + times * other.tensor,
            self.context + times * other.context,
            self.context_exposed + times * other.context_exposed,
            self.expert + times * other.expert,
        )


def step(model: ModelWork, layout: RankLayout, machine: Machine) -> StepSeconds:
    """Predict the time of a training step."""
    how, m, p = machine.how, layout.microbatches, layout.pipeline
    model = model.over(layout.tensor)
    of_kind = [_layer(layer, layout, machine) for layer in model.kinds]
    parts, stages = model.stages(p), []
    for stage in dict.fromkeys(parts[:-1]):
        stages.append(_sum(of_kind, stage))
    stages.append(_sum(of_kind, parts[-1]).plus(_head(model, layout, machine)))
    dearest = max(stages, key=lambda one: one.forward + one.backward + _inside(one, how))
    parameters = max((_parameters(model, layout, stage) for stage in {0, 1 % p, p - 1}), key=sum)
    communication = [
        Communication("tensor", m * dearest.tensor, m * dearest.tensor * (1 - how.tensor_overlap)),
        Communication("context", m * dearest.context, m * dearest.context_exposed),
        Communication("expert", m * dearest.expert, m * dearest.expert),
        _pipeline(model, layout, machine),
        *_data(parameters, len(model.layers) / p, dearest, layout, machine),
    ]
    seen = tuple(one for one in communication if one.seconds)
    hidden = sum(one.hidden for one in seen)
    local = sum(parameters) / (layout.shard if layout.zero else 1)
    bandwidth = machine.device.bandwidth * machine.kernels.memory
    compute = {
        "products": m * sum(dearest.products),
        "attention": m * sum(dearest.scores),
        "element-wise": m * sum(dearest.elements),
        "optimizer": ADAMW_BYTES * local / bandwidth,
        "contention": machine.kernels.contention * hidden,
    }
    inside = _inside(dearest, how)
    idle = bubble(layout, dearest.forward + inside / 3, dearest.backward + 2 * inside / 3)
    peak = machine.device.peak(machine.precision)
    return StepSeconds(
        {name: value for name, value in compute.items() if value},
        seen,
        idle,
        layout.batch * model.tokens,
        layout.ranks,
        layout.batch * model.flops,
        peak,
    )


def _sum(of_kind: list[_Times], stage: tuple[tuple[int, int], ...]) -> _Times:
    times = _Times()
    for kind, count in stage:
        times = times.plus(of_kind[kind], count)
    return times


def _inside(times: _Times, how: Execution) -> float:
    """Exposed communication inside layers."""
    return times.tensor * (1 - how.tensor_overlap) + times.context_exposed + times.expert


# -- one layer ---------------------------------------------------------------------------------------------------------

# Of products, scores and element-wise kernels, what is computed again.
_AGAIN = {
    "none": (0.0, 0.0, 0.0),
    "alternate": (0.5, 0.5, 0.5),
    "attention": (0.0, 1.0, 0.0),
    "products": (0.5, 0.0, 1.0),
    "blocks": (1.0, 1.0, 1.0),
}


def _layer(layer: LayerWork, layout: RankLayout, machine: Machine) -> _Times:
    how, kernels, device = machine.how, machine.kernels, machine.device
    t = layout.tensor
    apart = layout.context if layer.apart != "whole" else 1
    mixers = apart * (t if layer.heads else 1)
    again = _AGAIN[layout.recompute]
    precision = "fp8" if how.fp8 else machine.precision
    speed = kernels.of(precision) * device.peak(precision)
    speed *= layer.d_model / (layer.d_model + kernels.half)
    fullest = how.imbalance if layout.expert > 1 and layer.n_experts else 1.0
    products = layout.rows * (layer.mixing / mixers + fullest * layer.products / (layout.context * t)) / speed
    share = kernels.attention if how.tiled else kernels.of(machine.precision)
    scores = (
        layout.rows * layer.scores / mixers / (share * device.peak(machine.precision)) * _in_blocks(layer, layout, how)
    )
    backward = 2.5 if how.tiled else 2.0
    moved = layout.rows * layer.tokens / layout.context * _passes(layer, layout, how) * how.width
    moved += 0.0 if how.tiled else _SCORES * how.width * layout.rows * layer.tokens**2 * layer.heads / mixers
    elements = moved / (device.bandwidth * kernels.memory)
    idle = max(0.0, _LAUNCHES[how.compiled] * kernels.launch - products - scores - elements)  # waiting for the host
    elements += idle
    times = _Times(
        (products, (2 + again[0]) * products),
        (scores, (backward + again[1]) * scores),
        (elements, (2 + again[2]) * elements),
    )
    tokens = layout.rows * layer.tokens / layout.context
    if t > 1:
        ends = RankGroup(machine.network, t)
        size = tokens * layer.d_model * how.width
        one = 2 * ends.all_gather(size) if how.sequence else ends.all_reduce(size)
        sublayers = layer.sublayers - bool(layer.n_experts)  # tokens are divided for experts
        times.tensor = sublayers * one * (2 + layout.repeated)
        again_gathered = how.sequence and not how.keeps_gathered
        times.tensor += sublayers * ends.all_gather(size) * again_gathered  # inputs, for gradients
    if layout.context > 1:
        ring = machine.group(layout, "context")
        times.context, times.context_exposed = exchanged(layer, layout, ring, how, sum(times.scores))
    if layout.expert > 1 and layer.top_k:
        size = tokens / layout.tensor * layer.top_k * layer.d_model * how.width
        times.expert = (4 + 2 * layout.repeated) * machine.group(layout, "expert").all_to_all(size * how.imbalance)
    return times


_LAUNCHES = {False: 45, True: 15}  # kernels of a layer in forward, by whether they are fused
_SCORES = 5  # passes over materialized scores and weights in forward


def _passes(layer: LayerWork, layout: RankLayout, how: Execution) -> float:
    """Numbers of a token that element-wise kernels read and write in forward, of one rank."""
    norms = 2.0 if how.compiled or how.fused_norm else 14.0
    rotary, gate = (2.0, 2.0 + layer.gated) if how.compiled else (9.0, 2.0 + 3.0 * layer.gated)
    between = layer.sublayers * layer.d_model * (norms + 3.0)
    wide = gate * layer.inner + rotary * layer.rotary * (layer.heads + layer.kv_heads) * layer.d_head
    return between / (layout.tensor if how.sequence else 1) + wide / layout.tensor


def _in_blocks(layer: LayerWork, layout: RankLayout, how: Execution) -> float:
    """Return by what factor attention takes longer in a ring: one of its p blocks is the rank's own, and the results of the
    others have to be merged."""
    p = layout.context
    if p == 1 or layer.apart != "keys" or method_of(layer, layout) != "ring":
        return 1.0
    return 1 / p + (1 - 1 / p) / how.ring


def _head(model: ModelWork, layout: RankLayout, machine: Machine) -> _Times:
    """The output layer and its loss."""
    if not model.head_flops:
        return _Times()
    parts, how = layout.tensor, machine.how
    rows = layout.rows / (1 if how.head_whole else layout.context)
    speed = machine.kernels.of(machine.precision) * machine.device.peak(machine.precision)
    products = rows * model.head_flops / parts / speed
    passes = 8.0 if how.compiled else 12.0  # bytes of a logit in forward
    elements = rows * model.length * model.outputs / parts * passes
    elements /= machine.device.bandwidth * machine.kernels.memory
    return _Times((products, 2 * products), (0.0, 0.0), (elements, 2 * elements))


# -- between layers and steps ------------------------------------------------------------------------------------------


def _pipeline(model: ModelWork, layout: RankLayout, machine: Machine) -> Communication:
    """Sends between stages: an activation forward and a gradient back for each microbatch and chunk."""
    if layout.pipeline == 1:
        return Communication("pipeline", 0.0, 0.0)
    how = machine.how
    size = layout.rows * model.length / layout.context * model.d_model * how.width
    size /= layout.tensor if how.sequence else 1
    one = machine.group(layout, "pipeline").send(size)
    every = 2 * layout.chunks * layout.microbatches * one
    edges = 2 * (layout.pipeline - 1) * one
    return Communication("pipeline", every + edges, edges if how.pipeline_overlap else every + edges)


def _parameters(model: ModelWork, layout: RankLayout, stage: int) -> tuple[float, float]:
    """Return the parameters of a rank of a stage before ZeRO shards them: outside experts, and in experts."""
    t, last = layout.tensor, stage == layout.pipeline - 1
    layers = [(model.kinds[kind], count) for kind, count in model.stages(layout.pipeline)[stage]]
    own = sum(count * (layer.whole + layer.divided / t) for layer, count in layers)
    own += model.embedding / t * (stage == 0 or (last and model.tied)) + (model.head / t + model.other) * last
    return own, sum(count * layer.experts / layout.expert for layer, count in layers)


def _replicas(layout: RankLayout, machine: Machine, *axes: str) -> RankGroup:
    """Return the group of ranks that hold the same parameters and compute different rows or tokens."""
    axes = tuple(axis for axis in axes if layout.size(axis) > 1)
    return RankGroup(machine.network, math.prod(map(layout.size, axes)), layout.stride(axes[-1]) if axes else 1)


def _sums(parameters: tuple[float, float], layout: RankLayout, machine: Machine) -> float:
    """Return the seconds of summing a rank's gradients over the other ranks with the same parameters, outside `shard`."""
    inner = () if machine.how.context_shards else ("context",)
    size = machine.how.reduced / (layout.shard if layout.zero else 1)
    others = () if layout.zero else ("shard",)
    seconds = _replicas(layout, machine, "data", *others, "expert", *inner).all_reduce(parameters[0] * size)
    return seconds + _replicas(layout, machine, "data", *others, *inner).all_reduce(parameters[1] * size)


def _data(
    both: tuple[float, float], layers: float, times: _Times, layout: RankLayout, machine: Machine
) -> list[Communication]:
    """Sums of gradients over replicas, and the gathering of parameters."""
    how, parameters = machine.how, sum(both)
    stride, within = layout.stride("shard"), layout.shard
    if how.context_shards:
        stride, within = layout.stride("context"), layout.shard * layout.context
    shard = RankGroup(machine.network, within, stride)
    gradients, found = parameters * how.reduced, []
    apart = layout.tensor * layout.context * layout.expert > 1 or both[1] > 0
    overlaps = how.data_overlap and (how.overlap_inside or not apart)
    summed = _sums(both, layout, machine)
    if layout.zero == 3:
        times_a_step = 1 if layout.pipeline > 1 and how.gather_once else layout.microbatches
        gather, scatter = shard.all_gather(parameters * how.gathered), shard.all_gather(gradients)
        forward, backward = times_a_step * times.forward, times_a_step * times.backward
        ends = (
            times_a_step * (gather + scatter) / max(layers, 1)
        )  # the first layer's parameters, the last one's gradients
        again = 0.0 if how.keeps_parameters else gather
        before = max(0.0, times_a_step * gather - forward) if how.data_overlap else times_a_step * gather
        after = times_a_step * (again + scatter)
        after = max(0.0, after - backward) if how.data_overlap else after
        seconds = times_a_step * (gather + again + scatter)
        found.append(Communication("shard", seconds, min(seconds, max(before, 0.0) + after + ends)))
    elif layout.shard > 1:
        times_a_step = layout.microbatches if layout.zero == 2 else 1  # stage 2 keeps no sums of others' gradients
        reduced, sent = times_a_step * shard.all_gather(gradients), shard.all_gather(parameters * how.weights)
        summed *= times_a_step
        hidden = min(reduced, times_a_step * times.backward) if overlaps else 0.0
        hidden += min(sent, times.forward) if how.gather_overlap else 0.0
        seconds = reduced + sent
        found.append(Communication("shard", seconds, seconds - hidden))
    if summed:
        hidden = min(summed * (1 - 1 / max(layers, 1)), times.backward) if overlaps else 0.0
        found.append(Communication("data", summed, summed - hidden))
    return found
