"""Bytes that the fullest rank of a layout needs: weights, gradients, optimizer state, gathered parameters, activations.

For a parameter of P numbers on t tensor ranks, divided over s shard ranks by ZeRO's stage z (Rajbhandari et al. 2020):

    weights    4 P/t, and /s for z = 3         gradients  4 P/t, and /s for z ≥ 2
    optimizer  8 P/t, and /s for z ≥ 1         gathered   two blocks of P/t, for z = 3

Stages 1 and 2 give whole matrices to ranks, so the rank with the largest matrix may hold more than its share.
Activations are counted for the microbatches that a stage has in flight (`bubbles.py`): up to p in 1F1B, all in GPipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from ...layers.losses import CHUNK_BYTES
from .bubbles import in_flight
from .context import method_of
from .execution import Execution
from .layout import RankLayout
from .work import LayerWork, ModelWork

FRAGMENTATION = 1.05
BUCKET_BYTES = 25 << 20  # of gradients, or of parameters, that travel together: as in PyTorch's DDP


@dataclass(frozen=True)
class RankMemory:
    """Bytes of the fullest rank.

    stage:   the pipeline stage of that rank.
    freed:   activations that are freed before the gradients of layers exist.
    reserve: bytes that libraries need.
    """

    weights: float
    gradients: float
    optimizer: float
    gathered: float
    activations: float
    logits: float
    stage: int = 0
    freed: float = 0.0
    reserve: float = 1e9

    @property
    def states(self) -> float:
        """What is kept from step to step, and the gradients."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        return self.states + self.gathered + self.activations + self.logits - self.freed

    @property
    def needed(self) -> float:
        """With what libraries and the allocator need."""
        return FRAGMENTATION * self.total + self.reserve

    def to_dict(self) -> dict[str, float]:
        return {**asdict(self), "total": self.total, "needed": self.needed}


def memory(model: ModelWork, layout: RankLayout, how: Execution) -> RankMemory:
    """Predict the bytes of the fullest rank."""
    p, first = layout.pipeline, dict[object, int]()
    model = model.over(layout.tensor)
    for stage, layers in enumerate(model.stages(p)[:-1]):
        first.setdefault((layers, stage == 0), stage)  # the first of equal stages has the most microbatches in flight
    return max((of_stage(model, layout, how, stage) for stage in (*first.values(), p - 1)), key=lambda one: one.total)


def of_stage(model: ModelWork, layout: RankLayout, how: Execution, stage: int) -> RankMemory:
    """Predict the bytes of the ranks of one stage of the pipeline."""
    model = model.over(layout.tensor)
    layers = [(model.kinds[kind], count) for kind, count in model.stages(layout.pipeline)[stage]]
    t, first, last = layout.tensor, stage == 0, stage == layout.pipeline - 1
    blocks = [layer.whole + layer.divided / t + layer.experts / layout.expert for layer, _ in layers]
    rest = model.embedding / t * (first or (last and model.tied)) + (model.head / t + model.other) * last
    mine = sum(block * count for block, (_, count) in zip(blocks, layers, strict=True)) + rest
    ranks = layout.shard * (layout.context if how.context_shards else 1)
    shared = mine / ranks
    owned = shared if layout.zero == 3 else max(shared, _largest_share(_matrices(model, layers, first, last), layout))
    weights = shared if layout.zero == 3 else mine
    gradients = mine if layout.zero < 2 else owned
    optimizer = owned if layout.zero else mine
    gathered = 0.0
    if layout.zero == 3 and ranks > 1:
        held = rest + min(len(model.layers), 2) * max(blocks, default=0.0)
        gathered = how.gathered * held
        if how.keeps_parameters:
            gathered = how.gathered * mine
        if how.gather_once and layout.pipeline > 1:  # and gradients that are summed at the end of the step
            gathered = (how.gathered + how.reduced) * mine
    copies = how.copies * (mine if layout.zero < 3 else 0.0)
    kept = in_flight(layout, stage) * sum(count * _kept(model, layer, layout, how) for layer, count in layers)
    if layers and layout.repeated:
        kept += model.kept.get("none", 1.0) * max(activations(layer, layout, how, whole=True) for layer, _ in layers)
    # With several microbatches, gradients exist from the first one on.
    one = bool(model.kept) and layout.microbatches * layout.pipeline == 1
    freed = min(how.gradients * gradients * (1 - rest / max(mine, 1)), kept) if one else 0.0
    logits = 0.0
    if last:
        tokens = layout.rows * model.length / (1 if how.head_whole else layout.context)
        seen = tokens * model.outputs / t
        chunk = min(seen * how.width, CHUNK_BYTES) if how.fused_loss else seen * how.logit
        logits = tokens * 2 * how.width * model.d_model + chunk
    return RankMemory(
        how.weights * weights,
        how.gradients * gradients,
        optimizer * (how.optimizer + (0.0 if how.tables is None else how.tables - how.optimizer) * rest / max(mine, 1)),
        gathered + copies,
        kept,
        logits,
        stage,
        freed,
        how.reserve,
    )


def _kept(model: ModelWork, layer: LayerWork, layout: RankLayout, how: Execution) -> float:
    """Bytes that a layer keeps for a microbatch, scaled to their counted size; of every second block, the mean of both."""
    if layout.recompute == "alternate":
        return sum(_kept(model, layer, replace(layout, recompute=kind), how) for kind in ("none", "blocks")) / 2
    return model.kept.get(layout.recompute, 1.0) * activations(layer, layout, how)


def _matrices(model: ModelWork, layers: Sequence[tuple[LayerWork, int]], first: bool, last: bool) -> tuple[int, ...]:
    ends = [model.embedding] * (first or (last and model.tied)) + [model.head] * last
    inner = [size for layer, count in layers for _ in range(count) for size in layer.matrices]
    return (*inner, *(size for size in ends if size))


def _largest_share(sizes: tuple[int, ...], layout: RankLayout) -> float:
    if layout.zero not in (1, 2) or not sizes:
        return 0.0
    return _largest_load(sizes, layout.shard) / layout.tensor


@lru_cache(maxsize=1024)
def _largest_load(sizes: tuple[int, ...], ranks: int) -> int:
    """The numbers of the fullest rank when the largest matrices are given out first, each to the emptiest rank."""
    loads = [0] * ranks
    for size in sorted(sizes, reverse=True):
        loads[loads.index(min(loads))] += size
    return max(loads)


def activations(layer: LayerWork, layout: RankLayout, how: Execution, whole: bool = False) -> float:
    """Bytes that a layer keeps from forward to backward for one microbatch; without recomputation if `whole`."""
    tokens, w, d = layout.rows * layer.tokens / layout.context, how.width, layer.d_model
    t = layout.tensor
    between = t if how.sequence else 1
    if layout.recompute == "blocks" and not whole:
        return tokens * w * d / between
    heads = layer.heads * layer.d_head
    inner = layer.inner * (how.imbalance if layout.expert > 1 and layer.n_experts else 1.0)
    wide = 2 * heads + 2 * layer.kv_heads * layer.d_head + (3 if layer.gated else 2) * inner
    kept = tokens * w * wide / t + tokens * w * d * (4 if how.compiled or how.fused_norm else 8) / between
    kept += 2 * tokens * w * d * (how.keeps_gathered and t > 1)
    if layout.context > 1 and method_of(layer, layout) == "all-gather":  # keys and values of all tokens
        kept += 2 * tokens * (layout.context - 1) * layer.kv_heads * layer.d_head * w / t
    if layout.recompute == "products":
        kept = tokens * w * (heads + wide / 2) / t + tokens * w * d / between
    if layer.heads and not how.tiled and layout.recompute != "attention":
        kept += 5 * layout.rows * layer.tokens**2 * layer.heads / t
    return kept


def can_evaluate_in_parts(layout: RankLayout, how: Execution) -> bool:
    """Whether an evaluation can gather one block of the model at a time."""
    return how.in_parts and layout.zero == 3 and layout.tensor * layout.expert * layout.pipeline == 1


def moments(
    model: ModelWork, layout: RankLayout, how: Execution, held: RankMemory, in_parts: bool = False
) -> dict[str, float]:
    """Return the bytes of the fullest rank in qkv at the moments that are not steps, with what libraries and allocator need.

    held: what the rank holds in a step. With its weights w, its optimizer state o, P parameters in all and m numbers in the
    largest tensor:

        start        w + max(4 m, o) a model that is divided is drawn or read one whole parameter at a time, before the
                                     optimizer makes its state; in ZeRO 1 and 2 parameters then move into buckets (+ b)
        resume       w + o + 4 m     tensors are read one after the other, each rank's slice of them
        evaluation   w + o + 4 P     all parameters are gathered on every rank, in fp32; in ZeRO 3 narrow ones too (+ 2 P)
        delivery     w + o + 4 P     as for an evaluation, which follows

    Ranks that have the whole model have 4 P = w, and gather nothing. A stage of a pipeline gathers only the others. With
    `begins_whole`, the start needs w + max(4 P, o). `in_parts`, P in the evaluation and the delivery is the parameters
    outside blocks and of two blocks; narrow blocks get their fp32 copies in the evaluation only.
    """
    divides = layout.zero == 3 or layout.tensor * layout.expert * layout.pipeline > 1
    largest = max([model.embedding, model.head, *(size for layer in model.kinds for size in layer.matrices)], default=0)
    one = how.weights * largest if divides else 0.0
    made = how.weights * model.parameters if divides and how.begins_whole else one
    narrow = how.gathered if layout.zero == 3 and how.gathered < how.weights else 0.0
    gathered: float = model.parameters
    wide = 0.0  # of `gathered`, what the delivery lacks
    if in_parts:
        blocks = [layer.whole + layer.divided + layer.experts for layer in model.kinds]
        wide = min(len(model.layers), 2) * max(blocks, default=0)
        gathered = model.embedding + model.head + model.other + wide
    whole = (how.weights + narrow) * gathered if divides else 0.0
    if layout.pipeline > 1 and layout.zero < 3 and layout.tensor * layout.expert == 1:
        whole -= held.weights
    bucket = (
        min(max(BUCKET_BYTES, how.weights * largest), held.weights / layout.shard) if layout.zero in (1, 2) else 0.0
    )
    kept = held.weights + held.optimizer
    sizes = {
        "start": held.weights + max(made, held.optimizer + bucket),
        "resume": kept + one,
        "evaluation": kept + whole + held.logits,
        "delivery": kept + whole - (how.weights * wide if narrow else 0.0),
    }
    return {name: FRAGMENTATION * size + how.reserve for name, size in sizes.items()}
