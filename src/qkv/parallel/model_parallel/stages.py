"""Divide the layers of a Transformer into the stages of a pipeline, by their predicted cost."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ...models.stack import pairs
from ...models.transformer import Transformer, TransformerModel
from ..mesh import Mesh
from ..scale import PipelineSchedule
from ..world import World
from .deferred import defer
from .division import Division
from .pipeline import Part, Pipeline
from .schedules import chunks_of

TOKENS = 512  # of a sequence, for which the cost of layers is compared


def divide_layers(model: nn.Module, mesh: Mesh, division: Division, schedule: PipelineSchedule) -> None:
    """Keep the layers of this rank's stage. Embeddings stay with the first layer of their stack, its norm with the last
    layer, and heads with the last layer of all. What several stages use is kept by all of them.

    Raises ValueError if the model is no Transformer, has fewer layers than stages, or has reversible layers.
    """
    ranks = mesh.group("pipeline")
    stages = mesh.size("pipeline") * chunks_of(schedule)
    assert isinstance(ranks, World)
    if not isinstance(model, TransformerModel):
        raise ValueError(
            f"scale.pipeline divides the layers of Transformers, and this model is a {type(model).__name__}; use other axes"
        )
    stacks = [stack for stack in (model.encoder, model.decoder) if stack is not None]
    if any(stack.reversible for stack in stacks):
        raise ValueError("scale.pipeline can't divide reversible layers; choose another placement, or use other axes")
    n = sum(len(stack.block_of) for stack in stacks)
    if chunks_of(schedule) > 1 and mesh.device.type == "cuda":
        raise ValueError(f"pipeline_schedule={schedule} needs messages with tags, which NCCL lacks; give 1f1b or zb-h1")
    if n < stages:
        each = chunks_of(schedule)
        what = f"scale.pipeline={ranks.size} with {each} stages each" if each > 1 else f"scale.pipeline={stages}"
        raise ValueError(f"{what} is more than the {n} layers of this model; it can be 1 to {n // each}")
    edges = balanced(costs(model.spec), stages)
    division.pipeline = pipeline = Pipeline(ranks, schedule, model)
    used: dict[int, set[int]] = {}
    names: dict[str, Tensor] = {}

    def use(module: nn.Module, *some: int) -> None:
        for tensor in (*module.parameters(), *module.buffers()):
            used.setdefault(id(tensor), set()).update(some)

    for path, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
        names[path] = tensor
    offset = 0
    for stack in stacks:
        stage_of = [stage_with(edges, offset + i) for i in range(len(stack.block_of))]
        use(stack.embedding, stage_of[0])
        use(stack.norm, stage_of[-1])
        for i, stage in enumerate(stage_of):
            use(stack.block(stack.block_of[i]), stage)
        for module in (stack.position, stack.block_positions, stack.between):
            use(module, *stage_of)
        division.switch(stack, "part", Part(pipeline, edges, offset, len(stage_of)))
        offset += len(stage_of)
    for head in (model.head, model.classification_head):
        if head is not None:
            use(head, stages - 1)
    by_path = {
        path: {stage % ranks.size for stage in used.get(id(tensor), range(stages))} for path, tensor in names.items()
    }
    division.everywhere = {path for path, some in by_path.items() if len(some) > 1}
    if schedule == "zb-h1":
        pipeline.deferred = defer(model, division.switch)
    division.place({path: min(some) for path, some in by_path.items() if len(some) == 1})


def costs(spec: Transformer) -> list[float]:
    """The FLOPs of each layer of all stacks; the head counts to the last layer."""
    flops: list[float] = []
    for _, stack in spec.stacks():
        for block in stack.layers:
            crossed = TOKENS * TOKENS if block.cross is not None else 0
            memory = TOKENS if block.cross is not None else 0
            own = block.cost(spec.d_model, TOKENS, pairs(block.attention, TOKENS), memory, crossed)
            flops.append(float(own.flops))
    if spec.head is not None:
        flops[-1] += spec.head.cost_for(spec, TOKENS).flops
    return flops


def balanced(costs: Sequence[float], stages: int) -> list[int]:
    """The first layer of each stage, and the number of layers: consecutive layers, at least one each, of which the dearest
    stage is the cheapest possible."""
    n = len(costs)
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)
    best = [[float("inf")] * (n + 1) for _ in range(stages + 1)]  # [stages][layers]: cost of the dearest stage
    cut = [[0] * (n + 1) for _ in range(stages + 1)]
    best[0][0] = 0.0
    for stage in range(1, stages + 1):
        for stop in range(stage, n + 1):
            for start in range(stage - 1, stop):
                dearest = max(best[stage - 1][start], total[stop] - total[start])
                if dearest < best[stage][stop]:
                    best[stage][stop], cut[stage][stop] = dearest, start
    edges = [n]
    for stage in range(stages, 0, -1):
        edges.append(cut[stage][edges[-1]])
    return edges[::-1]


def stage_with(edges: Sequence[int], layer: int) -> int:
    """The stage that has a layer."""
    return next(stage for stage in range(len(edges) - 1) if layer < edges[stage + 1])
