"""Predict the memory of training without allocating it.

A training step runs on tensors with shapes but no contents (`memory_tracking`), and the bytes that are alive at once are
counted: weights, gradients, optimizer state, activations in their dtypes, and temporary tensors such as a chunk of logits.
So every layer, norm, dropout, precision, recomputation or optimizer counts with its actual memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ...core.batch import Batch
from ...core.layout import Layout
from ..kernels.products import onednn
from ..layers.quantized import quantized
from ..models.base import ModelSpec
from ..models.build import build
from ..models.heads.sequence import SentenceVector, SequenceClassifier
from ..models.stack import Recompute
from ..models.transformer import Transformer
from .flops import BatchShape
from .hardware import available
from .images import image_batch, patches_of
from .memory_tracking import ASKS, Live, without_contents

CPU = torch.device("cpu")

Loss = Callable[[nn.Module, Batch], Tensor]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]

# Memory beyond the tensors: of libraries, and free blocks of the heap that no request fits into (fragmentation). Measured;
# docs/machine.md has the numbers; tests/nn/cost/test_processes.py compares predictions with processes. The overhead of bf16
# was measured with Intel's matrix units. Constants with `_ONEDNN` are of processors without them, where
# `kernels.products.onednn` is faster in fp32. What it copies counts as tensors do (`memory_tracking.COPIES`).
LIBRARIES = 15 << 20
LIBRARIES_ONEDNN = 25 << 20
LIBRARIES_NARROW = 70 << 20  # oneDNN's kernels for bf16
LIBRARIES_ON_GPU = 160 << 20
FRAGMENTATION = 1.5
FRAGMENTATION_QUANTIZED = 1.67  # quantized weights in fp32: layers free tensors between outputs that stay
FRAGMENTATION_NARROW = 1.57
FRAGMENTATION_ONEDNN_NARROW = 1.48
FRAGMENTATION_ACCUMULATED = 0.15  # added with gradient accumulation: gradients stay between temporary tensors
FRAGMENTATION_RECOMPUTED = 3.0  # glibc seldom reuses the blocks of temporary tensors between those that stay
FRAGMENTATION_ON_GPU = 1.1
WORST = FRAGMENTATION_RECOMPUTED + FRAGMENTATION_ACCUMULATED

STATE_BYTES = 8  # per parameter without a given optimizer: Adam's two moments


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of training.

    `activations` are kept by a forward pass for its backward pass. `live` is the most that tensors have at any moment, which
    is less than the sum, as gradients are allocated while activations are freed. `peak` is the most that the process needs
    for them, with the memory of libraries and what the allocator can't reuse."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    live: int
    peak: int


@dataclass(frozen=True, eq=False)
class Count:
    """Memory of a step, a hash of the operators that it ran, and the live bytes at each."""

    memory: TrainingMemory
    program: int
    sizes: Sequence[int]

    def peak_towards(self, other: Count, share: float) -> float:
        """The peak of a batch between two that run the same operators, `share` of the way to the other: every tensor grows
        linearly with the rows of a batch, so the bytes at each operator are on a line."""
        live = max(a + share * (b - a) for a, b in zip(self.sizes, other.sizes, strict=True))
        mine, its = self.memory, other.memory
        factor = (its.peak - mine.peak) / (its.live - mine.live) if its.live != mine.live else 0.0
        return mine.peak + factor * (live - max(self.sizes))


@dataclass(frozen=True)
class MemorySettings:
    """Training settings that memory depends on.

    dtype:      of autocast; None computes in the dtype of the weights.
    accumulate: batches of an optimizer step.
    copies:     further copies of all weights that are kept, such as a running average.
    packed:     rows hold several documents.
    padded:     rows differ in length.
    prepare:    a change of the model before its memory is counted, such as quantizing its weights.
    loss:       the scalar to minimize; by default the model's own loss over labels.
    for_gpu:    add what a GPU's libraries and allocator need, whatever the device is.
    batch:      real data, if the loss reads more than tokens and labels; the memory of its step is scaled by its number of
                slots. By default a batch is made up.
    """

    device: torch.device = CPU
    dtype: torch.dtype | None = None
    recompute: Recompute = "none"
    accumulate: int = 1
    copies: int = 0
    packed: bool = False
    padded: bool = False
    optimizer: MakeOptimizer | None = None
    prepare: Callable[[nn.Module], object] | None = None
    loss: Loss | None = None
    batch: Batch | None = None
    for_gpu: bool = False


def predict(spec: ModelSpec, shape: BatchShape, plan: MemorySettings | None = None) -> TrainingMemory | None:
    """Predict the memory of training on batches of one shape, without allocating it.

    If the model or the loss depends on the values of tensors (ELECTRA's samples, a detector's matches), a step is run on the
    plan's batch and measured instead. Returns None if there is no batch or if that step might not fit.
    """
    counted = count(spec, shape, plan or MemorySettings())
    return None if counted is None else counted.memory


def count(spec: ModelSpec, shape: BatchShape, plan: MemorySettings) -> Count | None:
    """`predict`, with what was counted."""
    try:
        with without_contents():
            return _run(spec, shape, plan)
    except ASKS:
        free = available(plan.device)
        if plan.batch is None or free is None or ceiling(spec, shape, plan) > free / 2:
            return None
    with torch.random.fork_rng():
        return _run(spec, shape, plan, real=True)


def ceiling(spec: ModelSpec, shape: BatchShape, plan: MemorySettings) -> int:
    """Return a fast upper bound of `predict` for the usual kinds of layers, to see that memory is no concern."""
    floats = 0 if spec.stacks() else spec.cost(shape.length, shape.source).flops // 4  # of one row
    for name, stack in spec.stacks():
        reads_source = name == "encoder" and spec.is_encoder_decoder
        tokens, others = (shape.source, 0) if reads_source else (shape.length, shape.source)
        for block in stack.layers:
            heads, _ = block.attention.heads(spec.d_model) or (1, 0)
            kept = 32 * spec.d_model + 8 * getattr(block.feedforward, "d_ff", 4 * spec.d_model)
            floats += tokens * (kept + 6 * heads * (tokens + others))
    logits = 4 * shape.length * spec.vocab_size
    weights = spec.n_parameters * (32 + 4 * plan.copies)
    return _libraries(plan) + weights + round(WORST * 4 * shape.rows * (floats + logits))


def _run(spec: ModelSpec, shape: BatchShape, plan: MemorySettings, real: bool = False) -> Count:
    model = build(spec, device=plan.device, initialized=real).train()
    if plan.prepare is not None:
        plan.prepare(model)
    model.recompute(plan.recompute)
    batch, live = plan.batch or made_up_batch(spec, shape, plan), Live(copies=not plan.for_gpu)
    batch, share = batch.to(plan.device), shape.tokens / batch.slots
    live.hold_model(model)
    weights = live.now
    with live:
        optimizer = _OptimizerStep(model, plan)
        optimizer.step()  # so that its state exists in the step that is measured
        state, activations = live.now - weights, 0
        live.restart()
        for _ in range(min(plan.accumulate, 2)):
            before = live.now
            with _autocast(plan):
                loss = (plan.loss or own_loss)(model, batch)
            activations = max(activations, round((live.now - before) * share))
            loss.backward()
            del loss
        gradients = live.now - weights - state
        optimizer.step()
    permanent, copies = weights + state, plan.copies * weights
    temporary = gradients + max(live.peak - permanent - gradients, 0) * share
    live_bytes = permanent + copies + round(temporary)
    peak = _libraries(plan) + permanent + copies + round(_fragmentation(plan, bool(quantized(model))) * temporary)
    memory = TrainingMemory(weights + copies, gradients, state, activations, live_bytes, peak)
    return Count(memory, live.program, live.sizes)


def _narrow(plan: MemorySettings) -> bool:
    return plan.dtype is not None and plan.dtype.itemsize < 4


def _libraries(plan: MemorySettings) -> int:
    """Bytes of what libraries allocate for themselves."""
    if plan.for_gpu or plan.device.type != "cpu":
        return LIBRARIES_ON_GPU
    if _narrow(plan):
        return LIBRARIES_NARROW
    return LIBRARIES_ONEDNN if onednn.is_faster() else LIBRARIES


def _fragmentation(plan: MemorySettings, has_codes: bool) -> float:
    """Ratio of the memory that the process needs for temporary tensors to their size. `has_codes`: with quantized weights.

    PyTorch aligns tensors to 64 bytes, for which glibc searches a free block larger by 96 bytes. A block that was freed
    between two that stay is therefore too small for another tensor of its size.
    """
    if plan.for_gpu or plan.device.type != "cpu":
        return FRAGMENTATION_ON_GPU
    factor = FRAGMENTATION_QUANTIZED if has_codes else FRAGMENTATION
    if _narrow(plan):
        factor = FRAGMENTATION_ONEDNN_NARROW if onednn.is_faster() else FRAGMENTATION_NARROW
    if plan.recompute != "none":
        factor = FRAGMENTATION_RECOMPUTED
    return factor + FRAGMENTATION_ACCUMULATED * (plan.accumulate > 1)


class _OptimizerStep:
    """Steps of the optimizer; without one, tensors of the size of Adam's state."""

    def __init__(self, model: nn.Module, plan: MemorySettings) -> None:
        self.optimizer = plan.optimizer(model) if plan.optimizer is not None else None
        self.parameters = [p for p in model.parameters() if p.requires_grad]  # the optimizer may have frozen some
        self.state = [] if self.optimizer else [p.new_empty(p.numel() * STATE_BYTES // 4) for p in self.parameters]

    def step(self) -> None:
        for p in self.parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        if self.optimizer is not None:
            with suppress(*ASKS):  # a step that reads values stops there: only its temporary tensors are missing
                self.optimizer.step()
        for p in self.parameters:
            p.grad = None


def own_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The loss of the model's head, or the sum of its outputs if the batch has no labels."""
    if batch.labels is not None:
        loss: Tensor = model(**batch.inputs, labels=batch.labels).loss
        return loss
    outputs = [out for out in tree_leaves(model(**batch.inputs)) if isinstance(out, Tensor)]
    return torch.stack([out.sum() for out in outputs]).sum()


def _autocast(plan: MemorySettings) -> AbstractContextManager[Any]:
    return nullcontext() if plan.dtype is None else torch.autocast(plan.device.type, plan.dtype)


def made_up_batch(spec: ModelSpec, shape: BatchShape, plan: MemorySettings) -> Batch:
    """Make a batch of zeros of one shape: images for a model of images, else tokens; labels only if they have a loss."""
    if patches_of(spec) is not None:
        return image_batch(spec, shape.rows, shape.length)

    ids, layout = torch.zeros(shape.rows, shape.length, dtype=torch.int64), _layout(shape.rows, shape.length, plan)
    inputs: dict[str, Any] = {"ids": ids, "layout": layout}
    if spec.is_encoder_decoder:
        source = torch.zeros(shape.rows, shape.source, dtype=torch.int64)
        source_layout = _layout(shape.rows, shape.source, plan)
        inputs = {"ids": source, "layout": source_layout, "target": ids, "target_layout": layout}
    labels = torch.zeros_like(ids[:, 0] if spec.labels_sequences else ids)
    return Batch(inputs, None if _gives_vectors(spec) else labels, {"loss": labels.numel()}, shape.tokens, shape.tokens)


def _gives_vectors(spec: ModelSpec) -> bool:
    if not isinstance(spec, Transformer):
        return False
    head = spec.head
    return (
        head is None
        or isinstance(head, SentenceVector)
        or (isinstance(head, SequenceClassifier) and head.labels is None)
    )


def _layout(rows: int, length: int, plan: MemorySettings) -> Layout:
    if plan.packed and length > 1:
        return Layout.packed([(length // 2, length - length // 2)] * rows, length)
    shorter = [max(1, length - plan.padded)] * (rows - 1)
    return Layout.from_lengths([length, *shorter], length)
