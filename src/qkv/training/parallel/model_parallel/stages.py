"""Divide the layers of a Transformer into the stages of a pipeline, by their predicted cost."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ....nn.cost.plan.rules import PipelineSchedule, check_layers, check_schedule, check_stacks, chunks_of
from ....nn.cost.plan.stages import balanced
from ....nn.models.stack import does, pairs
from ....nn.models.transformer import Transformer, TransformerModel
from ....nn.positions.base import PositionModule
from ..mesh import Mesh
from ..world import World
from .deferred import defer
from .division import Division
from .pipeline import Pipeline, StageLayers

TOKENS = 512  # of a sequence, for which the cost of layers is compared


def divide_layers(model: nn.Module, mesh: Mesh, division: Division, schedule: PipelineSchedule) -> None:
    """Keep the layers of this rank's stage. Embeddings stay with the first layer of their stack, its norm with the last
    layer, and heads with the last layer of all. What several stages use is kept by all of them.

    Raises ValueError if the model is no Transformer, has fewer layers than stages, or has reversible layers.
    """
    ranks = mesh.group("pipeline")
    stages = mesh.size("pipeline") * chunks_of(schedule)
    assert isinstance(ranks, World)
    stacks = [stack for stack in (getattr(model, name, None) for name in ("encoder", "decoder")) if stack is not None]
    reversible = any(getattr(stack, "reversible", False) for stack in stacks)
    check_stacks(ranks.size, type(model).__name__, isinstance(model, TransformerModel), reversible)
    assert isinstance(model, TransformerModel)
    check_schedule(schedule, ranks.size, 0)
    check_layers(ranks.size, schedule, sum(len(stack.block_of) for stack in stacks))
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
        use(stack.position, *(stage_of[:1] if _only_embeds(stack.position) else stage_of))
        for module in (stack.block_positions, stack.between):
            use(module, *stage_of)
        division.switch(stack, "part", StageLayers(pipeline, edges, offset, len(stage_of)))
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


def _only_embeds(position: PositionModule) -> bool:
    """Whether a position scheme only adds to the embeddings, and layers do not use it."""
    return not any(does(position, what) for what in ("tables", "rotate", "rotate_queries", "rotate_keys", "bias"))


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


def stage_with(edges: Sequence[int], layer: int) -> int:
    """The stage that has a layer."""
    return next(stage for stage in range(len(edges) - 1) if layer < edges[stage + 1])
