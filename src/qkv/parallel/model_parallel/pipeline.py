"""Pipeline parallelism: the layers of a Transformer divided over ranks, between which hidden states travel.

The batches of a step are the microbatches. A rank runs the model's usual forward pass; a stack whose first layers are on
earlier ranks takes up their hidden states, and one whose last layers are on later ranks hands its own over, which ends the
forward pass there (`HandedOver`). Gradients travel back the same way.

`schedules.actions` says in which order. A rank may have several stages, whose forward passes it runs one at a time.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...core.extras import Extras, Record
from ...cost.plan.rules import PipelineSchedule, chunks_of
from ...training.strategy import Around
from ..world import World
from .deferred import Deferred, Waiting, compute
from .schedules import actions


class HandedOver(Exception):
    """The forward pass goes on at the next rank."""


@dataclass
class Microbatch:
    """What a stage keeps of a microbatch until its backward pass.

    states: received from the rank before: the hidden states of an unfinished stack, then an encoder's output.
    reports: what earlier layers reported, by their names.
    """

    states: list[Tensor] = field(default_factory=list)
    reports: list[tuple[str, Record]] = field(default_factory=list)
    sent: list[Tensor] = field(default_factory=list)
    loss: Tensor | None = None
    waiting: Waiting = field(default_factory=list)  # weight gradients that are left for later

    @property
    def received(self) -> list[Tensor]:
        return [*self.states, *(x for _, record in self.reports for x in record)]


class Pipeline:
    """The stages of a model on the ranks of the axis "pipeline", seen from one of them."""

    def __init__(self, ranks: World, schedule: PipelineSchedule, model: nn.Module) -> None:
        self.ranks, self.schedule, self.model = ranks, schedule, model
        self.names = {module: name for name, module in model.named_modules()}
        self.current = Microbatch()
        self.chunk = 0  # which of this rank's stages runs
        self.number = 0  # of the current microbatch
        self.stages = chunks_of(schedule) * ranks.size
        self.deferred: Deferred | None = None  # where backward passes are split
        self.travelling: list[tuple[dist.Work | None, Tensor]] = []

    def run(
        self,
        n: int,
        forward: Callable[[int], Tensor],
        around: Around,
        backward: Callable[[Tensor], None],
    ) -> None:
        """The forward and backward passes of n microbatches, see `training.strategy.Strategy.run`."""
        kept: dict[tuple[int, int], Microbatch] = {}
        for kind, i, chunk in actions(self.schedule, n, self.ranks.size, self.ranks.rank):
            self.number, self.chunk, key = i, chunk, (i, chunk)
            if kind == "forward":
                kept[key] = self.current = self._receive()
                with suppress(HandedOver):
                    self.current.loss = forward(i)
            elif kind == "weight":
                with around(i, True):
                    compute(kept.pop(key).waiting)
            elif kind == "input":
                assert self.deferred is not None
                with self.deferred.open() as waiting:
                    self._backward(kept[key], around(i, False), backward)
                kept[key] = Microbatch(waiting=waiting)
            else:
                # Gradients of this rank are complete after its last backward pass of a microbatch, which is of stage 0.
                self._backward(kept.pop(key), around(i, chunk == 0), backward)
        for work, _ in self.travelling:
            if work is not None:
                work.wait()
        self.travelling.clear()

    def hand_over(self, states: list[Tensor], extras: Extras | None) -> NoReturn:
        """Send hidden states, and what layers have reported so far, to the next rank. Raises HandedOver."""
        reports = [] if extras is None else [(self.names[layer], record) for layer, record in extras.records]
        if extras is not None:
            extras.terms()  # layers count their loads here
        tensors = self.current.sent = [*states, *(x for _, record in reports for x in record)]
        header = [(tuple(x.shape), x.dtype, x.requires_grad) for x in tensors]
        contents = pickle.dumps((len(states), [(name, len(record)) for name, record in reports], header))
        self._send(torch.tensor([len(contents)]), 1)
        self._send(torch.frombuffer(bytearray(contents), dtype=torch.uint8), 1)
        for x in tensors:
            self._send(x.detach(), 1)
        raise HandedOver

    def _receive(self) -> Microbatch:
        """Wait for what the rank before hands over."""
        if not self.stage:
            return Microbatch()
        length = self._wait_for(torch.empty(1, dtype=torch.int64), -1)
        contents = self._wait_for(torch.empty(int(length), dtype=torch.uint8), -1)
        states, lengths, header = pickle.loads(contents.numpy().tobytes())
        device = next(self.model.parameters()).device
        tensors = [
            self._wait_for(torch.empty(shape, dtype=dtype, device=device), -1).requires_grad_(trained)
            for shape, dtype, trained in header
        ]
        rest = iter(tensors[states:])
        return Microbatch(tensors[:states], [(name, tuple(itertools.islice(rest, n))) for name, n in lengths])

    def _backward(
        self, batch: Microbatch, around: AbstractContextManager[None], backward: Callable[[Tensor], None]
    ) -> None:
        trained = [x for x in batch.sent if x.requires_grad]
        gradients = []
        for x in trained:
            gradients.append(self._wait_for(torch.empty_like(x, memory_format=torch.contiguous_format), 1))
        with around:
            if batch.loss is not None:
                backward(batch.loss)
            elif trained:
                torch.autograd.backward(trained, gradients)
            for x in batch.received:  # before the sums over ranks, for which the rank before has to finish too
                if x.requires_grad:
                    self._send(torch.zeros_like(x) if x.grad is None else x.grad, -1)

    @property
    def stage(self) -> int:
        """The number of the stage that runs."""
        return self.chunk * self.ranks.size + self.ranks.rank

    def _wait_for(self, x: Tensor, step: int) -> Tensor:
        """Receive a tensor of the shape and dtype of x, into x, from the next stage (step 1) or the one before (−1)."""
        peer = (self.ranks.rank + step) % self.ranks.size
        edge = self.stage if step == 1 else self.stage - 1
        dist.recv(x, group=self.ranks.group, group_src=peer, tag=self._tag(edge, step == 1))
        return x

    def _send(self, x: Tensor, step: int) -> None:
        """Send to the next stage, or the one before, without waiting; the tensor is kept until the end of the step."""
        x, peer = x.contiguous(), (self.ranks.rank + step) % self.ranks.size
        edge = self.stage if step == 1 else self.stage - 1
        work = dist.isend(x, group=self.ranks.group, group_dst=peer, tag=self._tag(edge, step == -1))
        self.travelling.append((work, x))

    def _tag(self, edge: int, backward: bool) -> int:
        """What tells messages between two ranks apart: the stages that they travel between, and in which direction."""
        return 2 * (self.number * self.stages + edge) + backward


class Part:
    """The layers of a stack that the running stage of a rank has, see `core.ranks.StackPart`.

    edges: the first layer of each stage among the layers of all stacks. offset: the number of the stack's first layer, of n.
    """

    def __init__(self, pipeline: Pipeline, edges: Sequence[int], offset: int, n: int) -> None:
        self.pipeline, self.edges, self.offset, self.n = pipeline, edges, offset, n

    @property
    def _stage(self) -> tuple[int, int]:
        """The first layer of the running stage among those of all stacks, and that of the next one."""
        return self.edges[self.pipeline.stage], self.edges[self.pipeline.stage + 1]

    @property
    def layers(self) -> range:
        first, stop = self._stage
        return range(max(first - self.offset, 0), max(min(stop - self.offset, self.n), 0))

    @property
    def begins(self) -> bool:
        first, stop = self._stage
        return first <= self.offset < stop

    @property
    def ends(self) -> bool:
        first, stop = self._stage
        return first < self.offset + self.n <= stop

    @property
    def is_earlier(self) -> bool:
        return self.offset + self.n <= self._stage[0]

    @property
    def is_later(self) -> bool:
        return self._stage[1] <= self.offset

    def output(self, extras: Extras | None) -> Tensor:
        self._add_reports(extras)
        return self.pipeline.current.states[-1]

    def take_up(self, extras: Extras | None) -> Tensor:
        self._add_reports(extras)
        return self.pipeline.current.states[0]

    def hand_over(self, states: list[Tensor | None], extras: Extras | None) -> NoReturn:
        self.pipeline.hand_over([x for x in states if x is not None], extras)

    def _add_reports(self, extras: Extras | None) -> None:
        if extras is not None and not extras.records:
            for name, record in self.pipeline.current.reports:
                extras.records.append((self.pipeline.model.get_submodule(name), record))
