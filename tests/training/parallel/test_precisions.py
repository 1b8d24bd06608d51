"""Mixed precision on several ranks: one loss scale for all, and the losses of one rank within the precision's bounds."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from fast_subset import fast
from same_steps import FAMILIES, _prepared
from torch import nn

from qkv.core.ranks import ALONE, Ranks
from qkv.data.loader.stream import stream
from qkv.nn.models.block import BlockModule
from qkv.nn.models.build import build
from qkv.runs.train.prepare import use_of
from qkv.training.parallel.data_parallel import fully_sharded
from qkv.training.parallel.scale import Scale
from qkv.training.parallel.team import Team
from qkv.training.step import Stepper

pytestmark = pytest.mark.xdist_group("ranks")
FOUR_LAYERS = ("training.accumulate=2", "model.n_layers=4")
LAYOUTS: dict[str, dict[str, Any]] = {
    "replicas": {},
    "zero 1": {"shard": 2, "zero": 1},
    "zero 2": {"shard": 2, "zero": 2},
    "zero 3": {"shard": 2, "zero": 3},
    "tensor": {"tensor": 2},
    "context": {"context": 2},
    "expert": {"expert": 2},
    "1f1b": {"pipeline": 2},
    "gpipe": {"pipeline": 2, "pipeline_schedule": "gpipe"},
    "interleaved-1f1b": {"pipeline": 2, "pipeline_schedule": "interleaved-1f1b"},
    "zb-h1": {"pipeline": 2, "pipeline_schedule": "zb-h1"},
}


def _overflow(module: nn.Module, inputs: Any, output: Any) -> None:
    """Make the gradient of a block's output infinite."""
    output.register_hook(lambda gradient: gradient * float("inf"))


class Taken(NamedTuple):
    losses: list[float]
    norms: list[float]
    scales: list[float]
    dtypes: set[torch.dtype]  # of the outputs of blocks


def take(
    ranks: Ranks,
    precision: str,
    scale: dict[str, Any],
    settings: tuple[str, ...],
    overflow: bool,
    family: str = "decoder",
) -> Taken:
    """Take six steps. overflow: in the third one, the gradients of rank 1 overflow."""
    recipe, tokenizer, spec = _prepared(family, (*settings, f"training.precision={precision}"))
    value = Scale.from_dict(scale)
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    model = build(spec, seed=1).train()
    stepper = Stepper(model, recipe.objective, recipe.training, ranks, team.distribute(model))
    batching = recipe.batching.replace(pool=64, workers=0)
    taken = Taken([], [], [], set())
    blocks = [module for module in model.modules() if isinstance(module, BlockModule)]
    for block in blocks:
        block.register_forward_hook(lambda module, inputs, output: taken.dtypes.add(output.dtype))
    seq2seq = use_of(spec, next(recipe.data.examples("train"))) == "translate"
    batches = stream(recipe.data, tokenizer, batching, seq2seq=seq2seq, task=recipe.task, seed=3, shard=team.shard)
    with batches, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(6):
            overflows = overflow and step == 2 and ranks.rank == 1
            hooks = [block.register_forward_hook(_overflow) for block in blocks if overflows]
            done = stepper.take(list(itertools.islice(batches, recipe.training.accumulate)), lr=0.01)
            for hook in hooks:
                hook.remove()
            taken.losses.append(done.loss.item())
            taken.norms.append(done.grad_norm.item())
            taken.scales.append(0.0 if stepper.mixed.scaler is None else stepper.mixed.scaler.get_scale())
    return taken


def settings_of(layout: str) -> tuple[str, ...]:
    return FOUR_LAYERS if "pipeline" in LAYOUTS[layout] else ()


@pytest.mark.parametrize("layout", fast(LAYOUTS, "zero 1", "zero 3", "1f1b"))
def test_an_overflow_on_one_rank_halves_the_loss_scale_of_all(two: Any, layout: str) -> None:
    family = "moe" if layout == "expert" else "decoder"
    first, *others = two.run(take, "fp16", LAYOUTS[layout], settings_of(layout), True, family)
    assert first.scales == [65536.0, 65536.0, *[32768.0] * 4]
    assert all(other.scales == first.scales and other.losses == first.losses for other in others)


# What rounding of the weights and activations to 8 and 11 bits changes in six steps.
BOUNDS = {"bf16": 2e-2, "fp16": 4e-3}
DOCS = Path(__file__).parents[3] / "docs" / "scale.md"


def table() -> str:
    """The matrix of docs/scale.md in Markdown: `python tests/training/parallel/test_precisions.py` prints it."""
    cells = [f"within {100 * bound:g} %" for bound in BOUNDS.values()]
    rows = [["", *BOUNDS], ["---"] * (1 + len(BOUNDS)), *([name, *cells] for name in LAYOUTS)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def test_the_docs_have_this_matrix() -> None:
    assert table() in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("layout", fast(LAYOUTS, "zero 3"))
def test_losses_match_one_rank_within_the_bounds_of_the_precision(two: Any, layout: str, precision: str) -> None:
    settings, family = settings_of(layout), "moe" if layout == "expert" else "decoder"
    one = take(ALONE, precision, {}, settings, False, family)
    for taken in two.run(take, precision, LAYOUTS[layout], settings, False, family):
        assert taken.losses == pytest.approx(one.losses, rel=BOUNDS[precision])
        assert taken.norms == pytest.approx(one.norms, rel=5 * BOUNDS[precision])


class Held(NamedTuple):
    """What a rank of ZeRO 3 keeps of the weights from forward to backward, in bytes, and the dtypes of what travels."""

    saved: int
    rest: int
    whole: int
    gathered: set[torch.dtype]
    summed: set[torch.dtype]


def hold(ranks: Ranks, precision: str) -> Held:
    """Take a step, and look at the tensors that autograd has saved when the forward pass is over."""
    recipe, tokenizer, spec = _prepared("decoder", ("model.n_layers=6", f"training.precision={precision}"))
    value = Scale.from_dict({"shard": 2})
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    model = build(spec, seed=1).train()
    width = 4 if precision == "fp32" else 2
    shapes = {tuple(p.shape) for p in model.parameters() if p.ndim == 2}
    whole = sum(p.numel() for p in model.parameters()) * width
    rest = sum(p.numel() for name, p in model.named_parameters() if ".blocks." not in name) * width
    stepper = Stepper(model, recipe.objective, recipe.training, ranks, team.distribute(model))
    saved, gathered, summed = [], set(), set()
    direct = fully_sharded.DirectGather.__call__, fully_sharded.DirectScatter.__call__
    batches = stream(
        recipe.data, tokenizer, recipe.batching.replace(pool=64, workers=0), seq2seq=False, seed=3, shard=team.shard
    )

    def gather(self: Any, **named: Any) -> Any:
        gathered.add(named["output_tensor"].dtype)
        return direct[0](self, **named)

    def scatter(self: Any, **named: Any) -> Any:
        summed.add(named["output_tensor"].dtype)
        return direct[1](self, **named)

    def keep(x: torch.Tensor) -> torch.Tensor:
        saved.append(x)
        return x

    fully_sharded.DirectGather.__call__, fully_sharded.DirectScatter.__call__ = gather, scatter  # type: ignore[method-assign]
    try:
        with batches, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            batch = next(batches)
            counts = recipe.objective.counts(batch)
            loss, _ = stepper._loss(batch, counts, counts)
            weights = [x for x in saved if {tuple(x.shape), tuple(x.shape)[::-1]} & shapes]
            held = {x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in weights}
            loss.backward()
    finally:
        fully_sharded.DirectGather.__call__, fully_sharded.DirectScatter.__call__ = direct  # type: ignore[method-assign]
    return Held(sum(held.values()), rest, whole, gathered, summed)


@pytest.mark.parametrize("precision", fast(["bf16", "fp16", "fp32"], "bf16"))
def test_zero_3_keeps_no_weights_of_blocks_and_gathers_them_in_the_precision(two: Any, precision: str) -> None:
    """In the dtype of autocast too, whose cache would keep a narrow copy of all of them."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[precision]
    for held in two.run(hold, precision):
        assert held.gathered == {dtype} and held.summed == {torch.float32}
        assert held.saved <= 1.05 * held.rest < 0.2 * held.whole


@pytest.mark.parametrize("family", fast(FAMILIES, "encoder-decoder"))
def test_models_in_bf16_by_zero_3_have_the_losses_of_one_rank(two: Any, family: str) -> None:
    one = take(ALONE, "bf16", {}, (), False, family)
    for taken in two.run(take, "bf16", {"shard": 2}, (), False, family):
        bound = 5e-2 if family == "contrastive" else BOUNDS["bf16"]  # a small temperature divides its scores
        assert taken.losses == pytest.approx(one.losses, rel=bound)
        assert taken.dtypes == one.dtypes


@pytest.mark.parametrize("layout", fast(["zero 3"], "zero 3"))
def test_an_evaluation_has_the_weights_in_fp32(two: Any, layout: str) -> None:
    for gathered, whole, back in two.run(evaluated, LAYOUTS[layout]):
        assert gathered == whole and back


def evaluated(ranks: Ranks, scale: dict[str, Any]) -> tuple[float, float, bool]:
    """The loss of an evaluation with gathered weights, and with the same weights in a model of one rank. Whether training
    continues with parts."""
    recipe, tokenizer, spec = _prepared("decoder", ("training.precision=bf16",))
    value = Scale.from_dict(scale)
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    model, alone = build(spec, seed=1).train(), build(spec, seed=1).eval()
    stepper = Stepper(model, recipe.objective, recipe.training, ranks, team.distribute(model))
    batching = recipe.batching.replace(pool=64, workers=0)
    with stream(recipe.data, tokenizer, batching, seq2seq=False, seed=3, shard=team.shard) as batches:
        batch = next(batches)
        parts = sum(p.numel() for p in model.parameters())
        model.eval()
        stepper.strategy.gather()
        with torch.no_grad():
            losses = [one(**batch.inputs, labels=batch.labels).loss.item() for one in (model, alone)]
        stepper.strategy.scatter()
        model.train()
        taken = stepper.take([next(batches)], lr=0.01)
    return losses[0], losses[1], taken.bad.item() == 0.0 and sum(p.numel() for p in model.parameters()) == parts


if __name__ == "__main__":
    print(table())
