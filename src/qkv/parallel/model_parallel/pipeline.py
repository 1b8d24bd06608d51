"""Pipeline parallelism: the layers of a Transformer divided over ranks, between which hidden states travel.

The batches of a step are the microbatches. A rank runs the model's usual forward pass; a stack whose first layers are on
earlier ranks takes up their hidden states, and one whose last layers are on later ranks hands its own over, which ends the
forward pass there (`HandedOver`). Gradients travel back the same way.

    GPipe (Huang et al. 2019): the forward passes of all microbatches, then all backward passes.
    1F1B (Narayanan et al. 2019): a backward pass as soon as there is one, so that rank s of p keeps p − s microbatches.

Both leave ranks idle for (p − 1)/(m + p − 1) of a step with m microbatches.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Literal, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...core.extras import Extras, Record
from ..scale import PipelineSchedule
from ..world import World


class HandedOver(Exception):
    """The forward pass goes on at the next rank."""


Action = tuple[Literal["forward", "backward"], int]


def actions(schedule: PipelineSchedule, microbatches: int, stages: int, stage: int) -> Iterator[Action]:
    """What a stage does in a step, in order, with the number of the microbatch."""
    ahead = microbatches if schedule == "gpipe" else min(microbatches, stages - 1 - stage)
    for i in range(ahead):
        yield "forward", i
    for i in range(microbatches):
        if ahead + i < microbatches:
            yield "forward", ahead + i
        yield "backward", i


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

    @property
    def received(self) -> list[Tensor]:
        return [*self.states, *(x for _, record in self.reports for x in record)]


class Pipeline:
    """The stages of a model on the ranks of the axis "pipeline", seen from one of them."""

    def __init__(self, ranks: World, schedule: PipelineSchedule, model: nn.Module) -> None:
        self.ranks, self.schedule, self.model = ranks, schedule, model
        self.names = {module: name for name, module in model.named_modules()}
        self.current = Microbatch()
        self.travelling: list[tuple[dist.Work | None, Tensor]] = []

    def run(
        self,
        n: int,
        forward: Callable[[int], Tensor],
        around: Callable[[int], AbstractContextManager[None]],
        backward: Callable[[Tensor], None],
    ) -> None:
        """The forward and backward passes of n microbatches, see `training.strategy.Strategy.run`."""
        kept: dict[int, Microbatch] = {}
        for action, i in actions(self.schedule, n, self.ranks.size, self.ranks.rank):
            if action == "forward":
                kept[i] = self.current = self._receive()
                with suppress(HandedOver):
                    self.current.loss = forward(i)
            else:
                self._backward(kept.pop(i), around(i), backward)
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
        self._send(torch.tensor([len(contents)]), self.ranks.rank + 1)
        self._send(torch.frombuffer(bytearray(contents), dtype=torch.uint8), self.ranks.rank + 1)
        for x in tensors:
            self._send(x.detach(), self.ranks.rank + 1)
        raise HandedOver

    def _receive(self) -> Microbatch:
        """Wait for what the rank before hands over."""
        if not self.ranks.rank:
            return Microbatch()
        length = self._wait_for(torch.empty(1, dtype=torch.int64))
        contents = self._wait_for(torch.empty(int(length), dtype=torch.uint8))
        states, lengths, header = pickle.loads(contents.numpy().tobytes())
        device = next(self.model.parameters()).device
        tensors = [
            self._wait_for(torch.empty(shape, dtype=dtype, device=device)).requires_grad_(trained)
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
            gradient = torch.empty_like(x, memory_format=torch.contiguous_format)
            dist.recv(gradient, group=self.ranks.group, group_src=self.ranks.rank + 1)
            gradients.append(gradient)
        with around:
            if batch.loss is not None:
                backward(batch.loss)
            elif trained:
                torch.autograd.backward(trained, gradients)
            for x in batch.received:  # before the sums over ranks, for which the rank before has to finish too
                if x.requires_grad:
                    self._send(torch.zeros_like(x) if x.grad is None else x.grad, self.ranks.rank - 1)

    def _wait_for(self, x: Tensor) -> Tensor:
        """Receive a tensor of the shape and dtype of x, into x, from the rank before."""
        dist.recv(x, group=self.ranks.group, group_src=self.ranks.rank - 1)
        return x

    def _send(self, x: Tensor, to: int) -> None:
        """Send without waiting; the tensor is kept until the end of the step."""
        x = x.contiguous()
        self.travelling.append((dist.isend(x, group=self.ranks.group, group_dst=to), x))


class Part:
    """The layers of a stack that a rank of a pipeline has, see `core.ranks.StackPart`.

    first, stop: the numbers of this rank's layers among those of all stacks. offset: the number of the stack's first layer.
    """

    def __init__(self, pipeline: Pipeline, first: int, stop: int, offset: int, n: int) -> None:
        self.pipeline = pipeline
        self.layers = range(max(first - offset, 0), max(min(stop - offset, n), 0))
        self.begins = first <= offset < stop
        self.ends = first < offset + n <= stop
        self.is_earlier, self.is_later = offset + n <= first, stop <= offset

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
