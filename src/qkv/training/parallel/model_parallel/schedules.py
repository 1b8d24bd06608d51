"""Schedules of a pipeline: the order in which a rank runs forward and backward passes of microbatches.

    GPipe (Huang et al. 2019): the forward passes of all microbatches, then all backward passes.
    1F1B (Narayanan et al. 2019): a backward pass as soon as there is one, so rank s of p keeps p − s microbatches.
    Interleaved 1F1B (Narayanan et al. 2021): a rank has two stages, s and p + s, so microbatches come round sooner.
    ZB-H1 (Qi et al. 2023): 1F1B whose backward pass is split. Gradients of inputs, for which the rank before waits, come
    first, and those of weights fill the gaps; rank s keeps inputs of p microbatches.

Let forward, input and weight passes take one unit of time each. A rank is then idle for 3 (p − 1) units in each step
under GPipe and 1F1B, for half as long under interleaved 1F1B, and for p − 1 units under ZB-H1.

NCCL has no tags: between two ranks it matches messages by their order alone, and one that its receiver has not asked for
holds up all later ones, in both directions. `turns` therefore gives the messages of each pair of ranks one order, in which
both issue them: that in which they would be produced if all passes took equally long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from ....nn.cost.plan.rules import CHUNKS, PipelineSchedule, check_microbatches, chunks_of

Kind = Literal["forward", "backward", "input", "weight"]


class Action(NamedTuple):
    """A pass over a microbatch. "input" and "weight" are the two parts of a backward pass; `chunk` is which of the rank's
    stages."""

    kind: Kind
    microbatch: int
    chunk: int = 0


def actions(schedule: PipelineSchedule, microbatches: int, ranks: int, rank: int) -> list[Action]:
    """What a rank does in a step, in order."""
    if schedule == "interleaved-1f1b":
        return _interleaved(microbatches, ranks, rank)
    ahead = microbatches if schedule == "gpipe" else min(microbatches, ranks - 1 - rank)
    split = schedule == "zb-h1"
    done = [Action("forward", i) for i in range(ahead)]
    for i in range(microbatches):
        if ahead + i < microbatches:
            done.append(Action("forward", ahead + i))
        done.append(Action("input" if split else "backward", i))
        if split and i >= rank:
            done.append(Action("weight", i - rank))
    if split:
        done += [Action("weight", i) for i in range(max(microbatches - rank, 0), microbatches)]
    return done


def _interleaved(microbatches: int, ranks: int, rank: int) -> list[Action]:
    """Groups of as many microbatches as ranks go through the first stages, then through the second ones. Raises ValueError
    if they don't make whole groups."""
    check_microbatches("interleaved-1f1b", ranks, microbatches)
    n = CHUNKS * microbatches

    def at(k: int) -> tuple[int, int]:
        """The microbatch and the chunk of the k-th forward pass."""
        group, place = divmod(k, CHUNKS * ranks)
        chunk, within = divmod(place, ranks)
        return group * ranks + within, chunk

    forward = [Action("forward", *at(k)) for k in range(n)]
    backward = [Action("backward", i, CHUNKS - 1 - chunk) for i, chunk in map(at, range(n))]
    ahead = min(n, 2 * (ranks - 1 - rank) + (CHUNKS - 1) * ranks)
    done = forward[:ahead]
    for k in range(n):
        done += forward[ahead + k : ahead + k + 1]
        done.append(backward[k])
    return done


class Message(NamedTuple):
    """What travels between two stages: hidden states from stage `edge` to the next one, or with `back` their gradients in
    the opposite direction."""

    microbatch: int
    edge: int
    back: bool = False

    @property
    def sender(self) -> int:
        """The stage that sends it."""
        return self.edge + self.back

    @property
    def receiver(self) -> int:
        """The stage that receives it."""
        return self.edge + (not self.back)


class ScheduleTurn(NamedTuple):
    """An action, with the messages that a rank starts to send or to receive, in order: `before` it, so its input is
    received, and `after` it, so its output is sent."""

    before: list[Message]
    action: Action
    after: list[Message]


@lru_cache(maxsize=64)
def turns(schedule: PipelineSchedule, microbatches: int, ranks: int, rank: int) -> list[ScheduleTurn]:
    """What a rank does in a step, in order, with its messages. A message is started only after all earlier messages of
    the same two ranks."""
    waiting = {
        pair: list(messages) for pair, messages in _orders(schedule, microbatches, ranks).items() if rank in pair
    }

    def started(message: Message | None) -> list[Message]:
        """The message and those before it that were not started yet."""
        order = [] if message is None else waiting[_pair(message, ranks)]
        if message not in order:
            return []
        n = order.index(message) + 1
        some, order[:n] = order[:n], []
        return some

    stages = chunks_of(schedule) * ranks
    done = []
    for action in actions(schedule, microbatches, ranks, rank):
        needed, produced = messages_of(action, rank, ranks, stages)
        before = started(needed)
        done.append(ScheduleTurn(before, action, started(produced)))
    return done


def messages_of(action: Action, rank: int, ranks: int, stages: int) -> tuple[Message | None, Message | None]:
    """The messages that an action of a rank needs and produces."""
    kind, i, chunk = action
    stage = chunk * ranks + rank
    if kind == "weight":
        return None, None
    before = Message(i, stage - 1, kind != "forward") if stage else None
    after = Message(i, stage, kind != "forward") if stage < stages - 1 else None
    return (before, after) if kind == "forward" else (after, before)


def _pair(message: Message, ranks: int) -> frozenset[int]:
    return frozenset((message.sender % ranks, message.receiver % ranks))


@lru_cache(maxsize=8)
def _orders(schedule: PipelineSchedule, microbatches: int, ranks: int) -> dict[frozenset[int], list[Message]]:
    """The messages between every two ranks, in the order in which they are produced if all passes take equally long."""
    stages = chunks_of(schedule) * ranks
    found: defaultdict[frozenset[int], list[tuple[float, Message]]] = defaultdict(list)
    for rank, spans in enumerate(simulated(schedule, microbatches, ranks, (1.0, 1.0, 1.0)).spans):
        for action, (_, end) in zip(actions(schedule, microbatches, ranks, rank), spans, strict=True):
            _, produced = messages_of(action, rank, ranks, stages)
            if produced is not None:
                found[_pair(produced, ranks)].append((end, produced))
    return {pair: [message for _, message in sorted(timed)] for pair, timed in found.items()}


class Timeline(NamedTuple):
    """When each action of each rank begins and ends, with passes of given durations and messages that take no time."""

    spans: list[list[tuple[float, float]]]

    @property
    def end(self) -> float:
        return max(stop for rank in self.spans for _, stop in rank)

    def idle(self, rank: int) -> float:
        """How long a rank waits in a step."""
        return self.end - sum(stop - start for start, stop in self.spans[rank])


def simulated(schedule: PipelineSchedule, microbatches: int, ranks: int, durations: Sequence[float]) -> Timeline:
    """The timeline of a step. durations: of a rank's forward, input and weight passes over a microbatch, in all its chunks.

    Raises ValueError if the ranks wait for one another for ever.
    """
    chunks = chunks_of(schedule)
    takes = dict(zip(("forward", "input", "weight"), (d / chunks for d in durations), strict=True))
    takes["backward"] = takes["input"] + takes["weight"]
    orders = [actions(schedule, microbatches, ranks, rank) for rank in range(ranks)]
    ended: dict[tuple[bool, int, int], float] = {}  # (backward, microbatch, stage) → time
    spans: list[list[tuple[float, float]]] = [[] for _ in orders]
    stages, moved = chunks * ranks, True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while len(spans[rank]) < len(order):
                kind, i, chunk = order[len(spans[rank])]
                stage, back = chunk * ranks + rank, kind != "forward"
                first = (stage == 0 and not back) or kind == "weight" or (back and stage == stages - 1)
                needed = (back, i, stage + 1 if back else stage - 1)
                if not first and needed not in ended:
                    break
                begins = max(0.0 if first else ended[needed], spans[rank][-1][1] if spans[rank] else 0.0)
                spans[rank].append((begins, begins + takes[kind]))
                if kind != "weight":
                    ended[back, i, stage] = begins + takes[kind]
                moved = True
    if any(len(done) < len(order) for done, order in zip(spans, orders, strict=True)):
        raise ValueError(f"the schedule {schedule} of {microbatches} microbatches and {ranks} ranks never ends")
    return Timeline(spans)
