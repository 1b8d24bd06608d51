"""Measure the cost of each variant of a comparison: time and activation memory of a step on the same batch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice

import torch
from torch import Tensor

from ...core.batch import Batch
from ...data.loader.stream import stream
from ...io.directories.layout import EVALUATION, read_json
from ..inference.run import Run

_BATCHES = 50  # batches of the validation split among which to find the longest rows
_ROUNDS = 3


@dataclass(frozen=True)
class VariantCosts:
    """Costs of one variant.

    parameters: of the model.
    metrics:    of the test split.
    tokens:     in the measured batch.
    seconds:    of a forward and a backward pass, the median of some rounds.
    kept:       bytes of activations that the forward pass keeps for the backward pass.
    """

    parameters: int
    metrics: dict[str, float]
    tokens: int
    seconds: float
    kept: int

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def costs(runs: Mapping[str, Run], rounds: int = _ROUNDS) -> dict[str, VariantCosts]:
    """Measure trained variants on this machine, all of them in every round, so disturbances affect them alike."""
    batches = {name: _longest(run) for name, run in runs.items()}
    kept = {name: _kept(run, batches[name]) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(_seconds(run, batches[name]))
    return {
        name: VariantCosts(
            sum(p.numel() for p in run.model.parameters()),
            _metrics(run),
            batches[name].tokens,
            statistics.median(times[name]),
            kept[name],
        )
        for name, run in runs.items()
    }


def _longest(run: Run) -> Batch:
    """The batch with the longest rows among the first validation batches."""
    recipe = run.recipe
    assert recipe is not None
    batching, seq2seq = recipe.batching.replace(workers=0, shuffle=False), run.model.is_encoder_decoder
    with stream(
        recipe.data,
        run.tokenizer,
        batching,
        seq2seq=seq2seq,
        task=recipe.task,
        split="validation",
        seed=recipe.seed,
        epochs=1,
    ) as batches:
        longest = max(islice(batches, _BATCHES), key=lambda batch: batch.slots / max(batch.rows, 1))
    return longest.to(run.model.device)


def _step(run: Run, batch: Batch) -> None:
    assert run.recipe is not None
    loss: Tensor | float = 0.0
    for term in run.recipe.objective(run.model, batch).values():
        loss = loss + term.weight * term.sum / max(term.count, 1)
    assert isinstance(loss, Tensor)
    torch.autograd.backward(loss)


def _seconds(run: Run, batch: Batch) -> float:
    began = time.perf_counter()
    _step(run, batch)
    if run.model.device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    run.model.zero_grad(set_to_none=True)
    return seconds


def _kept(run: Run, batch: Batch) -> int:
    """Bytes that the graph holds after the forward pass, each storage counted once."""
    weights = {p.untyped_storage().data_ptr() for p in run.model.parameters()}
    sizes: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        _step(run, batch)
    run.model.zero_grad(set_to_none=True)
    return sum(sizes.values())


def _metrics(run: Run) -> dict[str, float]:
    if run.path is None or not (run.path / EVALUATION).is_file():
        return {}
    metrics = read_json(run.path / EVALUATION)["metrics"]
    return {name: float(value) for name, value in metrics.items()}
