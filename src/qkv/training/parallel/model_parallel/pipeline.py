"""Pipeline parallelism: the layers of a Transformer divided over ranks, between which hidden states travel.

The batches of a step are the microbatches. A rank runs the model's usual forward pass. A stack whose first layers are
on earlier ranks takes up their hidden states. A stack whose last layers are on later ranks hands its hidden states
over, which ends the forward pass there (`HandedOver`). Gradients travel back the same way.

`schedules.turns` says in which order passes run and messages start. A rank may have several stages, whose forward passes it
runs one at a time.

A receiver has to know the shapes of what it receives. Batches of the same shapes make hidden states of the same shapes. The
sender tells them once for each kind of batch (`MessageContents`), and the host waits for them that once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ....core.extras import Extras, Record
from ....nn.cost.plan.rules import PipelineSchedule, chunks_of
from ...strategy import BackwardContext
from ..world import World
from .deferred import Deferred, Waiting, compute
from .schedules import Message, ScheduleTurn, messages_of, turns


class HandedOver(Exception):
    """The forward pass continues at the next rank."""


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


class MessageContents(NamedTuple):
    """What a forward message consists of: how many hidden states, the name and the number of tensors of each report, and
    the shape, dtype and need of a gradient of every tensor."""

    states: int
    reports: tuple[tuple[str, int], ...]
    tensors: tuple[tuple[tuple[int, ...], torch.dtype, bool], ...]


@dataclass
class Arriving:
    """A message that is being received: its tensors, and what to wait for. contents: of a forward message."""

    tensors: list[Tensor]
    works: list[dist.Work | None]
    contents: MessageContents | None = None


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
        self.kept: dict[tuple[int, int], Microbatch] = {}  # of (microbatch, chunk)
        self.ready: dict[Message, list[Tensor]] = {}  # tensors of messages to send
        self.described: dict[Message, MessageContents] = {}  # forward messages to send
        self.shapes: Sequence[Hashable] = ()  # of the batches of this step
        self.known: dict[
            tuple[int, Hashable], MessageContents
        ] = {}  # by the edge of a message and the shapes of its batch
        self.arriving: dict[Message, Arriving] = {}
        self.travelling: list[tuple[dist.Work | None, Tensor]] = []
        self.met = False

    def _meet(self) -> None:
        """Exchange a message with both neighbors, since NCCL connects two ranks when they first send and receive. All ranks
        do this in one order, so none waits in a circle."""
        self.met, rank, size = True, self.ranks.rank, self.ranks.size
        x = torch.zeros(1, device=self.device)
        for sender in range(size if self.stages > size and size > 2 else size - 1):
            receiver = (sender + 1) % size
            if rank == sender:
                dist.send(x, group=self.ranks.group, group_dst=receiver)
            elif rank == receiver:
                dist.recv(x, group=self.ranks.group, group_src=sender)

    def run(
        self,
        shapes: Sequence[Hashable],
        forward: Callable[[int], Tensor],
        around: BackwardContext,
        backward: Callable[[Tensor], None],
    ) -> None:
        """The forward and backward passes of a step, see `training.strategy.Strategy.run`."""
        self.shapes = shapes
        if not self.met:
            self._meet()
        for turn in turns(self.schedule, len(shapes), self.ranks.size, self.ranks.rank):
            kind, i, chunk = turn.action
            self.turn, self.number, self.chunk, key = turn, i, chunk, (i, chunk)
            self._start(turn.before)
            if kind == "forward":
                self.kept[key] = self.current = self._received()
                with suppress(HandedOver):
                    self.current.loss = forward(i)
            elif kind == "weight":
                with around(i, True):
                    compute(self.kept.pop(key).waiting)
            elif kind == "input":
                assert self.deferred is not None
                with self.deferred.open() as waiting:
                    self._backward(self.kept[key], around(i, False), backward)
                self.kept[key] = Microbatch(waiting=waiting)
            else:
                # Gradients of this rank are complete after its last backward pass of a microbatch, which is of stage 0.
                self._backward(self.kept.pop(key), around(i, chunk == 0), backward)
        for work, _ in self.travelling:
            if work is not None:
                work.wait()
        self.travelling.clear()

    turn: ScheduleTurn  # that runs

    def hand_over(self, states: list[Tensor], extras: Extras | None) -> NoReturn:
        """Send hidden states, and what layers have reported so far, to the next rank. Raises HandedOver."""
        reports = [] if extras is None else [(self.names[layer], record) for layer, record in extras.records]
        if extras is not None:
            extras.terms()  # layers count their loads here
        tensors = self.current.sent = [*states, *(x for _, record in reports for x in record)]
        _, produced = messages_of(self.turn.action, self.ranks.rank, self.ranks.size, self.stages)
        assert produced is not None
        self.described[produced] = MessageContents(
            len(states),
            tuple((name, len(record)) for name, record in reports),
            tuple((tuple(x.shape), x.dtype, x.requires_grad) for x in tensors),
        )
        self._produced([x.detach() for x in tensors])
        raise HandedOver

    def _received(self) -> Microbatch:
        """Wait for what the rank before hands over."""
        needed, _ = messages_of(self.turn.action, self.ranks.rank, self.ranks.size, self.stages)
        if needed is None:
            return Microbatch()
        message = self._arrived(needed)
        assert message.contents is not None
        states, lengths, _ = message.contents
        rest = iter(message.tensors[states:])
        return Microbatch(message.tensors[:states], [(name, tuple(itertools.islice(rest, n))) for name, n in lengths])

    def _backward(
        self, batch: Microbatch, around: AbstractContextManager[None], backward: Callable[[Tensor], None]
    ) -> None:
        needed, produced = messages_of(self.turn.action, self.ranks.rank, self.ranks.size, self.stages)
        gradients = [] if needed is None else self._arrived(needed).tensors
        with around:
            if batch.loss is not None:
                backward(batch.loss)
            elif gradients:
                torch.autograd.backward([x for x in batch.sent if x.requires_grad], gradients)
            if produced is not None:  # before the sums over ranks, for which the rank before has to finish too
                wanted = [x for x in batch.received if x.requires_grad]
                self._produced([torch.zeros_like(x) if x.grad is None else x.grad for x in wanted])

    @property
    def stage(self) -> int:
        """The number of the stage that runs."""
        return self.chunk * self.ranks.size + self.ranks.rank

    # -- messages -----------------------------------------------------------------------------------------------

    def _produced(self, tensors: list[Tensor]) -> None:
        """Send the output of the action that runs."""
        _, produced = messages_of(self.turn.action, self.ranks.rank, self.ranks.size, self.stages)
        assert produced is not None
        self.ready[produced] = tensors
        self._start(self.turn.after)

    def _arrived(self, message: Message) -> Arriving:
        """Wait for a message whose receipt was started."""
        arrived = self.arriving.pop(message)
        for work in arrived.works:
            if work is not None:
                work.wait()
        return arrived

    def _start(self, messages: Sequence[Message]) -> None:
        """Start to send and receive messages, in order. What is sent is kept until the end of the step."""
        for message in messages:
            if message.sender % self.ranks.size == self.ranks.rank:
                self._send(message, message.receiver % self.ranks.size)
            else:
                self.arriving[message] = self._receive(message, message.sender % self.ranks.size)

    def _send(self, message: Message, peer: int) -> None:
        tensors = [x.contiguous() for x in self.ready.pop(message)]
        if not message.back:
            contents, key = self.described.pop(message), self._key(message)
            if key not in self.known:
                self.known[key] = contents
                encoded = _encoded(contents, [*self.names.values()])
                tensors = [*(x.to(self.device) for x in (torch.tensor([len(encoded)]), encoded)), *tensors]
            elif self.known[key] != contents:
                raise ValueError(
                    "a stage of scale.pipeline has hidden states of other shapes than for an earlier batch of the same "
                    "shapes, which is not supported; use other axes"
                )
        for x in tensors:
            self.travelling.append((dist.isend(x, group=self.ranks.group, group_dst=peer), x))

    def _receive(self, message: Message, peer: int) -> Arriving:
        """Start to receive a message. Waits for its contents if they are not known."""
        if message.back:
            sent = self.kept[message.microbatch, message.edge // self.ranks.size].sent
            shaped = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in sent if x.requires_grad]
            return Arriving(shaped, [dist.irecv(x, group=self.ranks.group, group_src=peer) for x in shaped])
        key = self._key(message)
        if key not in self.known:
            length = torch.empty(1, dtype=torch.int64, device=self.device)
            dist.recv(length, group=self.ranks.group, group_src=peer)
            encoded = torch.empty(int(length), dtype=torch.int64, device=self.device)
            dist.recv(encoded, group=self.ranks.group, group_src=peer)
            self.known[key] = _decoded(encoded.tolist(), [*self.names.values()])
        contents = self.known[key]
        tensors = [torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype, _ in contents.tensors]
        works = [dist.irecv(x, group=self.ranks.group, group_src=peer) for x in tensors]
        trained = [x.requires_grad_(needs) for x, (_, _, needs) in zip(tensors, contents.tensors, strict=True)]
        return Arriving(trained, works, contents)

    def _key(self, message: Message) -> tuple[int, Hashable]:
        return message.edge, self.shapes[message.microbatch]

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.bool)


def _encoded(contents: MessageContents, names: list[str]) -> Tensor:
    """Contents as integers, which travel as other tensors do."""
    numbers = [contents.states, len(contents.reports)]
    for name, n in contents.reports:
        numbers += [names.index(name), n]
    for shape, dtype, needs in contents.tensors:
        numbers += [_DTYPES.index(dtype), needs, len(shape), *shape]
    return torch.tensor(numbers)


def _decoded(numbers: list[int], names: list[str]) -> MessageContents:
    rest = iter(numbers)
    states, n = next(rest), next(rest)
    reports = tuple((names[next(rest)], next(rest)) for _ in range(n))
    tensors = []
    for dtype in rest:
        needs, axes = bool(next(rest)), next(rest)
        tensors.append((tuple(itertools.islice(rest, axes)), _DTYPES[dtype], needs))
    return MessageContents(states, reports, tuple(tensors))


class StageLayers:
    """The layers of a stack that the running stage of a rank has, see `core.ranks.StackPart`.

    edges: the first layer of each stage among the layers of all stacks. offset: the number of the stack's first layer, of n.
    """

    def __init__(self, pipeline: Pipeline, edges: Sequence[int], offset: int, n: int) -> None:
        self.pipeline, self.edges, self.offset, self.n = pipeline, edges, offset, n

    @property
    def _stage(self) -> tuple[int, int]:
        """The first layer of the running stage, counted over all stacks, and the first layer of the next stage."""
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
