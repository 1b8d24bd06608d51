"""Measures by sequence length: training speed, number of sequential steps, and the reach of gradients."""

from __future__ import annotations

import math
import time
from itertools import islice
from typing import Any

import torch
from pydantic import Field, field_validator

from ...core.layout import Layout
from ...io.directories.build import build
from ...look.gradient_reach import reach
from ...nn.models.base import ModelSpec
from ...nn.models.recurrent.attention import Bahdanau, Luong
from ...nn.models.recurrent.model import Recurrent
from ...nn.models.transformer import Transformer
from ..inference.run import Run
from .measures import Curve, Measure

REPEATS = 3  # steps per length, of which the fastest counts


class OverLengths(Measure):
    """Base of measures on sources and targets of `lengths` tokens each."""

    x = "tokens of the source, and of the target"
    doubling = True

    lengths: tuple[int, ...] = (8, 16, 32, 64, 128)

    @field_validator("lengths")
    @classmethod
    def _ascending(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if len(lengths) < 2 or lengths[0] < 1 or list(lengths) != sorted(set(lengths)):
            raise ValueError(f"lengths are two or more positive integers in ascending order, not {list(lengths)}")
        return lengths


class Speed(OverLengths, kind="speed"):
    """Training speed in tokens per second, forward and backward, on random batches of about `tokens` tokens.

    The remark compares the growth of the measured time with that of the FLOPs.
    """

    title = "Training speed by length"

    tokens: int = Field(default=2048, gt=0)

    @property
    def y(self) -> str:
        return "tokens/s in training"

    def __call__(self, run: Run) -> Curve:
        model = build(run.model.spec, device=run.model.device).train()
        return [(float(n), 2 * n * self._rows(n) / self._seconds(model, n)) for n in self.lengths]

    def _rows(self, length: int) -> int:
        return max(1, self.tokens // (2 * length))

    def _seconds(self, model: Any, length: int) -> float:
        """The time of the fastest step, after a warm-up step."""
        ids = torch.randint(model.vocab_size, (2, self._rows(length), length), device=model.device)
        layout, times = Layout.full(length, device=model.device), []
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            loss = model(ids[0], ids[1], layout=layout, target_layout=layout, labels=ids[1]).loss
            loss.backward()
            float(loss.detach())  # waits for the device
            times.append(time.perf_counter() - began)
            model.zero_grad(set_to_none=True)
        return min(times[1:])

    def remark(self, run: Run, curve: Curve) -> str:
        (short, fast), (long, slow) = curve[-2:]
        spec = run.model.spec
        flops = [spec.cost(int(n), int(n)).flops for n in (short, long)]
        measured = 1 - math.log(slow / fast) / math.log(long / short)
        counted = math.log(flops[1] / flops[0]) / math.log(long / short)
        return (
            f"from {short:.0f} to {long:.0f} tokens, the time for a pair grows as n^{measured:.2f} and its FLOPs as "
            f"n^{counted:.2f}; {formula(spec)}"
        )


def formula(spec: ModelSpec) -> str:
    """The complexity of a pair of sentences of T_x and T_y tokens: the textbook formula, and that of this implementation."""
    if isinstance(spec, Transformer):
        return "O(S d² + S² d) per layer"
    assert isinstance(spec, Recurrent)
    recurrences = "O(T_x(d_h² + E d_h) + T_y(d_s² + E d_s"
    match spec.context:
        case Bahdanau():
            once = "with keys computed once, attention costs T_x d_a d_h + T_y(d_a d_s + T_x(d_a + d_h))"
            return f"{recurrences} + T_x d_a d_h)); {once}"
        case Luong():
            return f"{recurrences} + d_h d_s + T_x d_h))"
    return f"{recurrences} + d_h d_s))"


class SequentialSteps(OverLengths, kind="sequential-steps"):
    """Sequential operations of a training pass: tokens of a recurrent model, layers of a Transformer (Vaswani et al. 2017,
    table 1). Each further layer of a recurrent model adds one, because it follows one token behind."""

    title = "Sequential operations"

    @property
    def y(self) -> str:
        return "sequential operations"

    def __call__(self, run: Run) -> Curve:
        return [(float(n), float(self._steps(run.model.spec, n))) for n in self.lengths]

    def _steps(self, spec: ModelSpec, n: int) -> int:
        if isinstance(spec, Recurrent):
            return 2 * n + spec.encoder_layers + spec.decoder_layers - 2
        return sum(stack.n_layers for _, stack in spec.stacks())

    def remark(self, run: Run, curve: Curve) -> str:
        spec = run.model.spec
        apart = "up to n steps long" if isinstance(spec, Recurrent) else "1 step long in every layer"
        attends = isinstance(spec, Transformer) or isinstance(spec.context, Bahdanau | Luong)
        across = "1 step" if attends else "up to n steps"
        return f"the path between two source tokens is {apart}, that to a target token {across}"


class Reach(Measure, kind="reach"):
    """Norm of the gradient of the encoder's last state with respect to the embedding `n` tokens earlier, relative to that of
    the last embedding (Bengio et al. 1994), over `rows` sources of the test split, truncated to `length` tokens."""

    title = "Reach of gradients"
    x = "tokens away"

    length: int = Field(default=24, gt=1)
    rows: int = Field(default=32, gt=0)

    @property
    def y(self) -> str:
        return "gradient norm relative to the last token"

    def __call__(self, run: Run) -> Curve:
        assert run.recipe is not None
        examples = run.recipe.data.examples("test", shuffle=False)
        encoded = (run.encode(str(example.get("source", example.get("text")))) for example in examples)
        long = list(islice((ids[: self.length] for ids in encoded if len(ids) >= self.length), self.rows))
        if not long:
            return []
        norms = reach(run.model, torch.tensor(long, device=run.model.device))
        return [(float(n), norm / norms[0]) for n, norm in enumerate(norms)]

    def summary(self, curves: dict[str, Curve]) -> list[str]:
        if not any(curves.values()):
            return [f"No source of the test split has {self.length} tokens."]
        return [
            f"{name}: {curve[-1][1]:.2g} at {curve[-1][0]:.0f} tokens away." for name, curve in curves.items() if curve
        ]
