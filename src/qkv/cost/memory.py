"""The memory that training takes, before anything is allocated.

A training step is run on tensors that have shapes and no contents (`live`), and what is held at once is counted: weights,
gradients, optimizer state, what layers keep for the backward pass in the numbers they compute in, and what is there only for
a moment, such as a chunk of logits. So any layer, norm, dropout, precision, recomputation or optimizer counts as what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..core.batch import Batch
from ..core.layout import Layout
from ..models.base import ModelSpec
from ..models.build import build
from ..models.stack import Recompute
from .flops import Shape
from .images import image_batch, patches_of
from .memory_tracking import ASKS, Live, without_contents

CPU = torch.device("cpu")

Loss = Callable[[nn.Module, Batch], Tensor]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]

# Beyond the tensors: what libraries set aside for themselves, and free blocks of the heap that no request fits into
# (fragmentation). Measured; docs/machine.md has the numbers and tests/cost/test_processes.py holds predictions against
# processes.
LIBRARIES = 160 << 20
FRAGMENTATION = 1.4
FRAGMENTATION_NARROW = 1.75  # oneDNN's buffers for bf16 come and go between the tensors
FRAGMENTATION_ACCUMULATED = 0.4  # more where several batches make a step: gradients stay between what comes and goes
FRAGMENTATION_RECOMPUTED = (
    2.8  # glibc seldom finds a place again for what recomputation makes and drops between what stays
)
FRAGMENTATION_ON_GPU = 1.1

WORST = FRAGMENTATION_RECOMPUTED + FRAGMENTATION_ACCUMULATED

STATE_BYTES = 8  # a parameter, where the optimizer is not given: Adam's two moments


@dataclass(frozen=True)
class Memory:
    """Bytes. `activations` are what a forward pass leaves for its backward pass, and `peak` the most that is held at
    once, which is less than the sum: gradients come as activations go."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int


@dataclass(frozen=True)
class Plan:
    """How a model is trained, as far as memory goes.

    dtype:      autocast's; None computes in the weights' own numbers.
    accumulate: batches of an optimizer step.
    copies:     further copies of all weights that are kept, such as a running average.
    packed:     rows hold several documents.
    padded:     rows are of unequal length.
    loss:       the scalar to minimize; by default the model's own, over labels.
    batch:      of real data, where the loss reads more than tokens and labels; what comes and goes in its step is taken in
                proportion to its slots. By default one is made up.
    """

    device: torch.device = CPU
    dtype: torch.dtype | None = None
    recompute: Recompute = "none"
    accumulate: int = 1
    copies: int = 0
    packed: bool = False
    padded: bool = False
    optimizer: MakeOptimizer | None = None
    loss: Loss | None = None
    batch: Batch | None = None


def predict(spec: ModelSpec, shape: Shape, plan: Plan | None = None) -> Memory | None:
    """The memory of training on batches of one shape. None where a part of the model decides by the values of tensors, so
    that its memory can't be known before. Nothing is allocated, whatever the sizes."""
    plan = plan or Plan()
    try:
        with without_contents():
            return _run(spec, shape, plan)
    except ASKS:
        return None


def ceiling(spec: ModelSpec, shape: Shape, plan: Plan) -> int:
    """More than `predict` gives for layers of the usual kinds, found at once: enough to see that memory is no concern."""
    floats = 0 if spec.stacks() else spec.cost(shape.length, shape.source).flops // 4  # of one row
    for name, stack in spec.stacks():
        encodes = name == "encoder" and spec.is_encoder_decoder
        tokens, others = (shape.source, 0) if encodes else (shape.length, shape.source)
        for block in stack.layers:
            heads, _ = block.attention.heads(spec.d_model) or (1, 0)
            kept = 32 * spec.d_model + 8 * getattr(block.feedforward, "d_ff", 4 * spec.d_model)
            floats += tokens * (kept + 6 * heads * (tokens + others))
    logits = 4 * shape.length * spec.vocab_size
    weights = spec.n_parameters * (32 + 4 * plan.copies)
    return LIBRARIES + weights + round(WORST * 4 * shape.rows * (floats + logits))


def _run(spec: ModelSpec, shape: Shape, plan: Plan) -> Memory:
    model = build(spec, device=plan.device, initialized=False).train()
    model.recompute(plan.recompute)
    batch, live = plan.batch or _batch(spec, shape, plan), Live()
    batch, share = batch.to(plan.device), shape.tokens / batch.slots
    live.hold_model(model)
    weights = live.now
    with live:
        optimizer = _Moves(model, plan)
        optimizer.step()  # so that its state is there in the step that counts
        state, activations, live.peak = live.now - weights, 0, live.now
        for _ in range(min(plan.accumulate, 2)):
            before = live.now
            with _autocast(plan):
                loss = (plan.loss or _own_loss)(model, batch)
            activations = max(activations, round((live.now - before) * share))
            loss.backward()
            del loss
        gradients = live.now - weights - state
        optimizer.step()
    lasting, copies = weights + state, plan.copies * weights
    passing = gradients + max(live.peak - lasting - gradients, 0) * share
    peak = LIBRARIES + lasting + copies + round(_fragmentation(plan) * passing)
    return Memory(weights + copies, gradients, state, activations, peak)


def _fragmentation(plan: Plan) -> float:
    """How much more than the tensors that come and go in a step the process takes for them."""
    if plan.device.type != "cpu":
        return FRAGMENTATION_ON_GPU
    narrow = plan.dtype is not None and plan.dtype.itemsize < 4
    factor = FRAGMENTATION_NARROW if narrow else FRAGMENTATION
    if plan.recompute != "none":
        factor = FRAGMENTATION_RECOMPUTED
    return factor + FRAGMENTATION_ACCUMULATED * (plan.accumulate > 1)


class _Moves:
    """An optimizer, or what Adam's state would be in its place."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        self.optimizer = plan.optimizer(model) if plan.optimizer is not None else None
        self.parameters = [p for p in model.parameters() if p.requires_grad]  # the optimizer may have frozen some
        self.state = [] if self.optimizer else [p.new_empty(p.numel() * STATE_BYTES // 4) for p in self.parameters]

    def step(self) -> None:
        for p in self.parameters:
            p.grad = torch.empty_like(p) if p.grad is None else p.grad
        if self.optimizer is not None:
            with suppress(*ASKS):  # where a step looks at numbers, only what it holds for a moment is not counted
                self.optimizer.step()
        for p in self.parameters:
            p.grad = None


def _own_loss(model: nn.Module, batch: Batch) -> Tensor:
    if batch.labels is not None:
        loss: Tensor = model(**batch.inputs, labels=batch.labels).loss
        return loss
    outputs = [out for out in tree_leaves(model(**batch.inputs)) if isinstance(out, Tensor)]
    return torch.stack([out.sum() for out in outputs]).sum()  # a head without a loss: anything that reaches all of it


def _autocast(plan: Plan) -> AbstractContextManager[Any]:
    return nullcontext() if plan.dtype is None else torch.autocast(plan.device.type, plan.dtype)


def _batch(spec: ModelSpec, shape: Shape, plan: Plan) -> Batch:
    if patches_of(spec) is not None:
        return image_batch(spec, shape.rows)

    def ids(length: int) -> Tensor:
        return torch.zeros(shape.rows, length, dtype=torch.int64)

    own = ids(shape.length)
    inputs: dict[str, Any] = {"ids": own, "layout": _layout(shape.rows, shape.length, plan)}
    if spec.is_encoder_decoder:
        source = _layout(shape.rows, shape.source, plan)
        inputs = {"ids": ids(shape.source), "layout": source, "target": own, "target_layout": inputs["layout"]}
    labels = ids(shape.length)
    if getattr(getattr(spec, "head", None), "kind", None) == "sequence-classifier":
        labels = labels[:, 0]
    return Batch(inputs, labels, {"loss": labels.numel()}, shape.tokens, shape.tokens)


def _layout(rows: int, length: int, plan: Plan) -> Layout:
    if plan.packed and length > 1:
        return Layout.packed([(length // 2, length - length // 2)] * rows, length)
    shorter = [max(1, length - plan.padded)] * (rows - 1)
    return Layout.from_lengths([length, *shorter], length)
