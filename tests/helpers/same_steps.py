"""Take training steps of a small recipe on any number of ranks, in float64, for the contract that all give the same."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import small_recipes
import torch
from allocations import Allocations
from torch.utils import _pytree

from qkv.core.batch import IGNORE, Batch
from qkv.core.ranks import ALONE, Ranks
from qkv.data.loader.stream import stream
from qkv.generation.generate import generate
from qkv.nn.models.build import build, outline
from qkv.nn.models.initialization import Draws
from qkv.runs.evaluate.evaluate import Evaluator
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.prepare import use_of
from qkv.runs.train.tokenizer import make
from qkv.training import loop
from qkv.training.checkpoints.pieces import TensorPiece
from qkv.training.checkpoints.weights import model_tensors, optimizer_tensors
from qkv.training.loop import fit
from qkv.training.parallel.scale import Scale
from qkv.training.parallel.team import Team
from qkv.training.step import Stepper

STEPS = 3
SMALL = ("model.d_model=16", "model.n_heads=4", "model.n_layers=2", "training.precision=fp32", "training.compile=false")
MOE = "{kind: moe, n_experts: 4, top_k: 2, d_ff: 32, balance: mixtral, bias_rate: 0.01, router_z: 0.001}"
FEW = ("data.train=200", "data.validation=8", "data.test=8")  # a few batches, more than are taken
REVERSED = "data={kind: reverse, train: 200, validation: 8, test: 8}"
FAMILIES = {
    "encoder-decoder": ("reverse", *SMALL, *FEW, "model.dropout=0", "batching.tokens=300"),
    "decoder": ("nanogpt", *SMALL, REVERSED, "tokenizer={kind: char}", "model.max_positions=64",
                "batching.context=64", "batching.tokens=200"),
    "encoder": ("tag", *SMALL, *FEW, "model.dropout=0", "batching.tokens=300"),
    "moe": ("reverse", *SMALL, *FEW, "model.dropout=0", "batching.tokens=300",
            "model.replace={'*.blocks.*.feedforward': " + MOE + "}"),
    "window": ("nanogpt", *SMALL, REVERSED, "tokenizer={kind: char}", "model.max_positions=64",
               "batching.context=64", "batching.tokens=200",
               "model.replace={decoder.position: rotary, '*.blocks.*.attention.n_kv_heads': 2, "
               "'*.blocks.*.attention.pattern': {kind: window, size: 7, ahead: 1}}"),
    "vit": ("vit", *SMALL, "batching.tokens=600"),
    "contrastive": ("similarity", *SMALL, *FEW, "objective={kind: contrastive, both: true}", "batching.tokens=200"),
}  # fmt: skip

TOWERS = {
    kind: ("clip", "model.d_model=16", "model.n_layers=2", "model.d_ff=32", "model.text_d_model=16", "model.text_layers=1",
           "model.text_d_ff=32", "model.width=8", "data.size=[16,16]", "model.image=[16,16]", "model.patch=[8,8]",
           "training.precision=fp32", "training.compile=false", "batching.tokens=160", f"objective={kind}",
           "model.bias=-3")
    for kind in ("clip", "siglip")
}  # fmt: skip

STAGES = {
    "replicas": {},
    "zero 1": {"shard": 2, "zero": 1},
    "zero 2": {"shard": 2, "zero": 2},
    "zero 3": {"shard": 2, "zero": 3},
    "tensor": {"tensor": 2},
    "ring": {"context": 2},
    "all-to-all": {"context": 2, "context_attention": "all-to-all"},
    "all-gather": {"context": 2, "context_attention": "all-gather"},
}
DROPPING = ["encoder-decoder", "decoder", "encoder", "vit", "contrastive"]
LAYERS = ("model.n_layers=4", "training.accumulate=2")


class Steps(NamedTuple):
    """What steps gave, on each rank."""

    losses: list[float]
    values: list[dict[str, float]]
    norms: list[float]
    counts: list[int]
    weights: dict[str, torch.Tensor]  # this rank's part
    gradients: list[dict[str, torch.Tensor]]  # of each step before clipping, of the parameters that this rank updates
    pieces: dict[str, TensorPiece]  # where these parts are in the whole


@cache
def _prepared(family: str, settings: tuple[str, ...]) -> tuple[Recipe, Any, Any]:
    name, *own = {**FAMILIES, **TOWERS}[family]
    recipe = Recipe.load(name, [*own, *settings])
    tokenizer = make(recipe, False)
    recipe = recipe.resolve_data(tokenizer)
    spec = recipe.model.spec(None if tokenizer is None else tokenizer.vocab_size)
    random = any(setting.startswith("model.dropout") for setting in settings)
    return recipe, tokenizer, spec if random else type(spec).from_dict(_without_dropout(spec.to_dict()))


def _without_dropout(tree: Any) -> Any:
    """A spec's tree without what is random in training."""
    if isinstance(tree, dict):
        return {k: 0.0 if k in ("dropout", "drop_path") else _without_dropout(value) for k, value in tree.items()}
    return [_without_dropout(value) for value in tree] if isinstance(tree, list | tuple) else tree


def wide(batch: Batch) -> Batch:
    """The batch with its floating-point tensors in float64."""
    parts = (batch.inputs, batch.labels, batch.targets)
    inputs, labels, targets = _pytree.tree_map_only(
        torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, parts
    )
    return replace(batch, inputs=inputs, labels=labels, targets=targets)


def made(spec: Any, ranks: Ranks) -> tuple[Any, Draws | None]:
    """The model in float64; on several ranks its outline and draws."""
    if ranks.size == 1:
        return build(spec, dtype=torch.float64, seed=1), None
    model, draws = outline(spec, dtype=torch.float64, seed=1)
    assert draws is not None
    return model, draws


def take_steps(ranks: Ranks, family: str, scale: dict[str, Any] | None = None, settings: tuple[str, ...] = ()) -> Steps:
    """Take a few optimizer steps on a rank of a group, or alone."""
    recipe, tokenizer, spec = _prepared(family, settings)
    value = Scale.from_dict(scale or {})
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    model, draws = made(spec, ranks)
    stepper = Stepper(model.train(), recipe.objective, recipe.training, ranks, team.distribute(model, draws))
    seq2seq = use_of(spec, next(recipe.data.examples("train"))) == "translate"
    batches = stream(
        recipe.data, tokenizer, recipe.batching.replace(pool=64, workers=0), seq2seq=seq2seq, task=recipe.task,
        seed=3, shard=team.shard,
    )  # fmt: skip
    steps = Steps([], [], [], [], {}, [], {})
    _keep_gradients(stepper, steps)
    torch.manual_seed(5)
    with batches, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(STEPS):
            taken = stepper.take([wide(b) for b in itertools.islice(batches, recipe.training.accumulate)], lr=0.01)
            steps.losses.append(taken.loss.item())
            steps.values.append({name: value.item() for name, value in taken.values.items()})
            steps.norms.append(taken.grad_norm.item())
            steps.counts.append(taken.count)
    steps.weights.update({name: t.clone() for name, t in model_tensors(model).items()})
    steps.pieces.update(stepper.strategy.pieces({**steps.weights, **steps.gradients[0]}))
    return steps


def _keep_gradients(stepper: Stepper, steps: Steps) -> None:
    """Keep the gradients of each step, when they have been summed over the ranks."""
    reduce = stepper.strategy.reduce

    def kept(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
        parameters = reduce(optimizer)
        groups = optimizer.param_groups
        names = {p: n for g in groups for p, n in zip(g["params"], g["param_names"], strict=True)}
        steps.gradients.append({names[p]: p.grad.clone() for p in parameters if p.grad is not None})
        return parameters

    stepper.strategy.reduce = kept  # type: ignore[method-assign]


def compare(results: list[Steps], one: Steps) -> None:
    """Compare what several ranks gave with what one process gave, within 1e-9: every number of every rank's part of the
    gradients of all steps and of the weights after them, and that the parts make up the whole."""
    for steps in results:
        assert steps.counts == one.counts
        assert steps.losses == pytest.approx(one.losses, rel=1e-9)
        assert steps.norms == pytest.approx(one.norms, rel=1e-9)
        for mine, values in zip(steps.values, one.values, strict=True):
            assert mine == pytest.approx(values, rel=1e-9, abs=1e-12)
    for i, wanted in enumerate(one.gradients):
        _compare([(steps.gradients[i], steps.pieces) for steps in results], wanted, f"gradients of step {i + 1}", 1e-11)
    # The gradient of a key's bias is 0 up to rounding, of which some optimizers take the sign alone.
    moved = {name: tensor for name, tensor in one.weights.items() if not name.endswith(".k.bias")}
    _compare([(steps.weights, steps.pieces) for steps in results], moved, "weights", 1e-10)


def _compare(
    parts: list[tuple[dict[str, torch.Tensor], dict[str, TensorPiece]]],
    whole: dict[str, torch.Tensor],
    what: str,
    atol: float,
) -> None:
    covered = {name: torch.zeros(tensor.shape, dtype=torch.bool) for name, tensor in whole.items()}
    for rank, (tensors, pieces) in enumerate(parts):
        for name, tensor in tensors.items():
            if name in whole:
                wanted, seen = whole[name], covered[name]
                if name in pieces:
                    wanted, seen = (pieces[name].of(all_, tensor.shape) for all_ in (wanted, seen))
                where = f"{what}, {name}, rank {rank}"
                torch.testing.assert_close(tensor, wanted, rtol=1e-9, atol=atol, msg=where)
                seen.fill_(True)
    missing = [name for name, seen in covered.items() if not seen.all()]
    assert not missing, f"no rank has all {what} of {missing}"


def alone(family: str, settings: tuple[str, ...] = ()) -> Steps:
    return take_steps(ALONE, family, None, settings)


def train_to(
    ranks: Ranks,
    folder: str,
    steps: int,
    scale: dict[str, Any] | None = None,
    settings: tuple[str, ...] = (),
    resume: bool = False,
    evaluates: bool = False,
) -> str:
    """Train in a folder up to a number of steps, saving every third. Returns why it ended.

    evaluates: measure the loss of a batch and generate by beam search every second step.
    """
    recipe, tokenizer, spec = _prepared("moe", (*settings, "training.schedule={kind: constant}"))
    training = recipe.training.replace(
        max_steps=steps, save_every=3, eval_every=2 if evaluates else None, metric="loss", mode="min", final="last"
    )
    value = Scale.from_dict(scale or {})
    team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
    model = build(spec, dtype=torch.float64, seed=1)

    def open_stream(position: dict[str, Any] | None) -> Any:
        batches = stream(
            recipe.data, tokenizer, recipe.batching.replace(pool=64, workers=0), seq2seq=True, seed=3, shard=team.shard,
            position=position,
        )  # fmt: skip
        return map(wide, batches)

    def evaluate(model: Any, step: int) -> dict[str, float]:
        with stream(recipe.data, tokenizer, recipe.batching, seq2seq=True, split="validation", epochs=1) as batches:
            batch = wide(next(batches))
        sums = model(**batch.inputs, labels=batch.labels)
        given = {"layout": batch.inputs["layout"], "bos_id": 1, "eos_id": 2, "num_beams": 3, "max_new_tokens": 5}
        found = generate(model, batch.inputs["ids"], **given)
        tokens = [token for (row, *_) in found.sequences for token in row]
        searched = sum(i * token for i, token in enumerate(tokens, 1))
        return {"loss": float(sums.loss / (batch.labels != IGNORE).sum()), "searched": float(searched)}

    return fit(
        model,
        open_stream,
        recipe.objective,
        training,
        out=Path(folder),
        ranks=ranks,
        distribute=team.distribute,
        resume=resume,
        evaluate=evaluate if evaluates else None,
    ).ending


def bytes_of_a_resume(ranks: Ranks, folder: str, scale: dict[str, Any]) -> tuple[int, int, int]:
    """Resume a run of 3 steps and take no other. Returns the bytes allocated by reading the checkpoint, by this
    rank's part of the model and the optimizer, and by delivering the weights again."""
    restore, deliver, counted = loop.restore, loop.Trainer.deliver, []

    def counting(*given: Any) -> Any:
        with Allocations() as made:
            result = restore(*given)
        stepper = given[2]
        parts = {**model_tensors(given[1]), **optimizer_tensors(stepper.optimizer)}
        counted.extend([made.total, sum(t.numel() * t.element_size() for t in parts.values())])
        return result

    def delivering(*given: Any) -> Any:
        gather = given[0].stepper.strategy.gather
        given[0].stepper.strategy.gather = lambda: None
        with Allocations() as made:
            result = deliver(*given)
        given[0].stepper.strategy.gather = gather
        counted.append(made.total)
        return result

    loop.restore, loop.Trainer.deliver = counting, delivering  # type: ignore[assignment,method-assign]
    try:
        train_to(ranks, folder, 3, scale, ("training.optimizer={kind: adamw}",), resume=True)
    finally:
        loop.restore, loop.Trainer.deliver = restore, deliver  # type: ignore[method-assign]
    return counted[0], counted[1], counted[2]


def flip_a_bit(ranks: Ranks, folder: str) -> str:
    """Train with a copy of the weights on rank 1 that becomes another's. Returns the message of the error."""
    if ranks.rank == 1:
        before = Stepper.take

        def take(self: Stepper, batches: list[Batch], lr: float) -> Any:
            taken = before(self, batches, lr)
            with torch.no_grad():
                next(iter(self.strategy.model.parameters())).view(-1)[0] += 1e-12
            return taken

        Stepper.take = take  # type: ignore[method-assign]
    try:
        train_to(ranks, folder, 3)
    except ValueError as error:
        return str(error)
    finally:
        if ranks.rank == 1:
            Stepper.take = before  # type: ignore[method-assign]
    return ""


def nan_on_one_rank(ranks: Ranks) -> tuple[str, float]:
    """Take a step in which rank 1's loss is NaN. Returns whether the weights changed, and whether the step was bad."""
    recipe, tokenizer, spec = _prepared("encoder-decoder", ())
    team = Team(ranks, torch.device("cpu"), Scale(), Scale().sizes(ranks.size))
    model = build(spec, dtype=torch.float64, seed=1)
    stepper = Stepper(model, recipe.objective, recipe.training, ranks, team.distribute(model))
    with stream(
        recipe.data, tokenizer, recipe.batching.replace(pool=64, workers=0), seq2seq=True, shard=team.shard
    ) as batches:
        batch = wide(next(batches))
    before = [p.clone() for p in model.parameters()]
    if ranks.rank == 1:
        model.decoder.norm.register_forward_hook(lambda module, inputs, output: output * float("nan"))
    taken = stepper.take([batch], lr=0.1)
    same = all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    return "unchanged" if same else "changed", taken.bad.item()


def evaluate_on(ranks: Ranks, folder: str, settings: tuple[str, ...] = (), kind: str = "") -> dict[str, Any]:
    """Evaluate the run in a folder, or the untrained small model of a task, on the ranks together."""
    if kind:
        recipe, tokenizer, model, _ = small_recipes.prepared(kind)
    else:
        run = load(folder, device="cpu")
        assert run.recipe is not None
        recipe, tokenizer, model = run.recipe.change(list(settings)), run.tokenizer, run.model
    evaluator = Evaluator(
        recipe.data, tokenizer, recipe.batching, recipe.evaluation, recipe.generation, recipe.objective, recipe.seed,
        recipe.task, ranks,
    )  # fmt: skip
    result = evaluator(model, "validation", 11, score_each=not kind and "source" in next(recipe.data.examples("train")))
    return {**result.to_dict(), "outputs": result.outputs, "extremes": result.extremes, "seconds": None}
