"""Choose the settings that are `auto` before training starts: precision and compile. The saved recipe keeps the choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...core.ranks import ALONE, Ranks
from ...nn.cost import throughput
from ...nn.cost.flops import BatchShape, training_flops
from ...nn.cost.throughput import peak_flops
from ...nn.models.base import ModelSpec
from ...nn.models.block import Block
from ...training import compiling, mixed_precision
from ...training.logging.progress_bar import span
from ...training.settings import Training

Say = Callable[[str], None]


def adopt(training: Training, saved: Training) -> Training:
    """Replace `auto` by what the saved settings of a resumed training chose, so its steps stay the same."""
    names = ("precision", "compile")
    return training.replace({name: getattr(saved, name) for name in names if getattr(training, name) == "auto"})


@dataclass(frozen=True)
class Chooser:
    """Chooses settings for training one model on one device.

    shape:     the largest batch.
    one_shape: whether all batches are full rows of the same length.
    say:       called with a sentence for each choice.
    epoch:     about the number of batches in an epoch; None if unknown.
    ranks:     train together, and choose what all their machines support.
    """

    spec: ModelSpec
    shape: BatchShape
    device: torch.device
    one_shape: bool
    say: Say
    epoch: float | None = None
    ranks: Ranks = ALONE

    def resolve(self, training: Training) -> Training:
        """Replace `auto` in the settings. Explains each choice, and warns about a precision that is slow on this device."""
        return self._compile(self._precision(training))

    def _precision(self, training: Training) -> Training:
        chosen = mixed_precision.choose(training.precision, self.device, self.spec.d_model)
        for rank, (other, why) in enumerate(self.ranks.gather((chosen.precision, chosen.why))):
            if training.precision == "auto" and chosen.precision != other == "fp32":
                chosen = mixed_precision.Chosen(other, f"the ranks have different machines, and on rank {rank}, {why}")
        if chosen.why:
            self.say(f"Computing in {chosen.precision}: {chosen.why}.")
        warning = mixed_precision.slow(chosen.precision, self.device)
        if warning:
            self.say(f"Slow: {warning}.")
        return training.replace(precision=chosen.precision)

    def _compile(self, training: Training) -> Training:
        if training.compile != "auto":
            return training
        if not self.blocks:  # compiling does not speed up the loop of a recurrent model
            return training.replace(compile=False)
        seconds, layers = self.seconds(training), len(self.blocks)
        payoff = compiling.payoff(seconds, layers, self.device, self.one_shape, self.gated, training.precision)
        missing = compiling.missing_compiler(self.device) if payoff.pays else None
        lacks = [f"{what} on rank {rank}" for rank, what in enumerate(self.ranks.gather(missing)) if what]
        missing = missing or (lacks[0] if lacks else None)
        if payoff.pays:
            self.say(f"compile: {payoff}" + (f"; but it needs {missing}." if missing else "."))
        return training.replace(compile=payoff.pays and missing is None)

    @property
    def blocks(self) -> list[Block]:
        return [block for _, stack in self.spec.stacks() for block in stack.layers]

    @property
    def gated(self) -> bool:
        return any(getattr(block.feedforward, "gated", False) for block in self.blocks)

    def seconds(self, training: Training) -> float:
        """Estimate the duration of training by its limits in steps, epochs and time; 0 if only early stopping ends it."""
        batch = self.batch_seconds(training)
        by_steps = batch * training.accumulate * training.max_steps if training.max_steps else float("inf")
        by_epochs = batch * self.epoch * training.max_epochs if training.max_epochs and self.epoch else float("inf")
        by_time = training.max_time or float("inf")
        shortest = min(by_steps, by_epochs, by_time)
        return shortest if shortest != float("inf") else 0.0

    def batch_seconds(self, training: Training) -> float:
        """Estimate the time of a forward and a backward pass over the largest batch."""
        name = mixed_precision.choose(training.precision, self.device, self.spec.d_model).precision
        peak = peak_flops(self.device, mixed_precision.DTYPES[name])
        return throughput.seconds(
            training_flops(self.spec, self.shape), peak, self.device.type, name, self.spec.d_model
        )

    def estimate(self, training: Training) -> str:
        """A sentence with the expected speed and duration of training."""
        rate, duration = self.shape.tokens / self.batch_seconds(training), self.seconds(training)
        total = f", so training takes about {span(duration)} without evaluations" if duration else ""
        return f"Estimate: roughly {float(f'{rate:.1g}'):,.0f} tokens/s{total}; the measured speed follows."
