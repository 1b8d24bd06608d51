"""Averages of weights over training: of the last checkpoints, or running along with every step.

Averaged weights lie nearer the middle of the valley that training walks along, and usually generalize a little better.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from ..core.spec import Spec
from .checkpoints.slices import Parts, loaded
from .checkpoints.streaming import Later, stream_tensors
from .checkpoints.weights import Tensors, load_model, model_tensors


class Average(Spec, role="average"):
    """Which average of its weights a run delivers at its end."""


class NoAverage(Average, kind="none"):
    """The weights themselves."""


class LastCheckpoints(Average, kind="checkpoints"):
    """The mean of the last saved checkpoints (Vaswani et al. 2017, section 6.1, take 5 or 20 of them)."""

    last: Annotated[int, Field(ge=2)] = 5


class ExponentialMovingAverage(Average, kind="running"):
    """An exponential moving average, w̄ ← d · w̄ + (1 − d) · w at each step, which is also what evaluations see.

    d rises to `decay` as (1 + t) / (10 + t), so the first random weights are soon forgotten.
    """

    decay: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.999


class AveragedModel:
    """The running average of one model's weights; other tensors (counters, tables) are the model's own."""

    def __init__(self, spec: ExponentialMovingAverage, model: nn.Module) -> None:
        self.decay, self.model = spec.decay, model
        self.tensors = {name: tensor.clone() for name, tensor in model_tensors(model).items()}
        names = [name for name, tensor in self.tensors.items() if tensor.is_floating_point()]
        live = model_tensors(model)
        self._mine, self._live = [self.tensors[n] for n in names], [live[n] for n in names]

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._mine, self._live, 1.0 - decay)

    @torch.no_grad()
    def load(self, tensors: Parts) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(loaded(tensors[name]))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model holds the average inside, and its own weights again after."""
        own = {name: tensor.clone() for name, tensor in model_tensors(self.model).items()}
        load_model(self.model, self.tensors)
        try:
            yield
        finally:
            load_model(self.model, own)


def mean(sets: Iterable[Tensors]) -> dict[str, Tensor]:
    """The mean of sets of tensors, taken one set at a time in float64; integers are the last set's."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for tensors in sets:
        count += 1
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and name in total:
                total[name] += tensor
            else:
                total[name] = tensor.double() if tensor.is_floating_point() else tensor
            kinds[name] = tensor.dtype
    return {name: (t / count).to(kinds[name]) if kinds[name].is_floating_point else t for name, t in total.items()}


def mean_of(sets: Sequence[Parts]) -> dict[str, Tensor]:
    """Return the mean of sets of tensors. Those in files are read one set at a time."""
    read = ({name: loaded(tensor) for name, tensor in tensors.items()} for tensors in sets)
    return next(read) if len(sets) == 1 else mean(read)


def replace_by_mean(path: Path, sets: Sequence[Parts]) -> None:
    """Atomically write the mean of sets of tensors, with checksums, one tensor at a time."""

    def of(name: str) -> Tensor:
        return mean_of([{name: tensors[name]} for tensors in sets])[name]

    named = sorted(sets[0].items())
    stream_tensors(path, [Later(name, t.dtype, tuple(t.shape), partial(of, name)) for name, t in named])
