"""`qkv.prune`: remove heads, neurons and layers from a run, factorize its matrices, fine-tune, and report what it cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from torch import Tensor

from ...core import several
from ...core.atomic import check_replaceable, check_room, replacing_folder
from ...core.spec import brief, nearest
from ...io.directories.layout import MODEL, RUN, SHRUNK, Contents, refuse, write_text
from ...nn.activations import Zero, intervene
from ...nn.models.transformer import TransformerModel
from ...nn.pruning.ablation import head_ablation, layer_ablation
from ...nn.pruning.choose import least_heads, least_layers, least_neurons, removal_order
from ...nn.pruning.gates import gate_importance
from ...nn.pruning.importance import gradient_importance, normalized
from ...nn.pruning.low_rank import Rank, factorize, input_covariances, ranks_of
from ...nn.pruning.redundancy import Redundancy, redundancy
from ...nn.pruning.remove import remove_heads, remove_layers, remove_neurons
from ...nn.pruning.units import AttentionLayer, Heads, attention_layers, check_heads, feedforward_layers, spec_of
from ...runs.evaluate.evaluate import Evaluated, evaluate_run
from ...runs.inference.held_out import batches, recipe_of
from ...runs.inference.run import Run, load
from ...runs.recipes.model_choice import ModelChoice
from ...runs.recipes.overrides import without_replaced
from ...runs.recipes.recipe import Recipe
from ...runs.train.train import train
from .examples import loss_over, mean_loss, repeated, sum_loss
from .page import write_page
from .result import PruningResult
from .speed import speeds

By = Literal["gradient", "ablation", "gates"]
METHODS = ("gradient", "ablation", "gates")
PRUNING = "pruning.json"
PRUNED = Contents("a pruned run", (*MODEL.files, *RUN.files), needs=PRUNING)
_GATE_STEPS = 300
_CURVE = tuple(i / 10 for i in range(10))  # shares of heads


def prune(
    run: Run | Path | str,
    out: Path | str,
    *,
    heads: float | Heads = 0.0,
    until: float = 0.0,
    keep: Heads | None = None,
    by: By | None = None,
    neurons: float = 0.0,
    layers: int = 0,
    rank: Rank | None = None,
    finetune: str | int | None = None,
    examples: int = 512,
    curve: bool = True,
    changes: str | Sequence[str] = (),
    overwrite: bool = False,
    device: str | torch.device = "auto",
    console: Console | None = None,
) -> PruningResult:
    """Remove parts of a trained run and write the smaller run to `out`, with `pruning.json` and `pruning.html`.

    heads:    share of all heads to remove, the least important ones, or heads by layer: {"decoder.0": [1, 3]}.
    until:    remove the least important heads, one after another, as long as the loss on the validation split grows by no
              more than this share (0.05 for 5%).
    keep:     heads to keep in the layers that it names; all others of these layers are removed.
    by:       how the importance of heads is measured for a share or `until`: gradient (the default: |∂L/∂ξ|, Michel et al.
              2019), ablation (the loss without each head) or gates (trained with an L0 penalty, Voita et al. 2019).
    neurons:  share of the neurons of each feed-forward layer to remove, by their gradient.
    layers:   number of layers to remove, those without which the loss is the smallest.
    rank:     factorize the matrices of attention and feed-forward layers that are left, W ≈ U V, by SVD: a rank, for those
              that it makes smaller, or as a float the share of its parameters that each keeps. The error of the outputs is
              the smallest on examples of the training split.
    finetune: train what is left for a time ("5m") or a number of steps, by the run's recipe at a third of its learning rate.
    examples: from which importance is measured, of the training split; ablation and the curve take the validation split.
    curve:    also evaluate with 0 to 90 % of the heads without output, and compare the outputs of heads with each other.
    changes:  settings for the fine-tuning, KEY=VALUE.

    Raises ValueError if nothing would be removed, for unknown parts, for a rank that saves nothing, and for runs without a
    recipe.
    """
    console = console or Console(quiet=True)
    run = run if isinstance(run, Run) else load(run, device)
    job = _Job(run, console, examples)
    folder, changes = several.path(out, "out"), several.texts(changes, "changes")
    measure: By = by or "gradient"
    chosen = job.check(heads, until, keep, neurons, layers, rank)
    _check_measure(by, chosen is None)
    _check_finetuning(run, finetune, changes)
    _check_folder(folder, run, overwrite, finetune is not None)
    importance, drawn = dict[str, Tensor](), list[tuple[float, dict[str, float]]]()
    losses, alike = list[tuple[int, float]](), dict[str, Redundancy]()
    if chosen is None:
        assert isinstance(heads, float | int)
        importance = job.importance(measure)
        if curve:
            drawn, alike = job.curve(importance), job.redundancy()
        least, losses = job.until(importance, until) if until else (least_heads(importance, job.layers, heads), losses)
        chosen = {name: least[name] for name in job.layers if name in least}
    before = job.evaluated(run)
    model, removed_neurons, removed_layers = job.removed(chosen, neurons, layers)
    model, ranks = job.factorized(model, rank)
    parameters = (run.model.spec.n_parameters, model.spec.n_parameters)
    metrics = {"before": before.metrics}
    sizes = {name: layer.n_heads for name, layer in job.layers.items()}

    def result(pruned: Run) -> PruningResult:
        return PruningResult(
            run.name,
            folder,
            measure if importance else "given",
            chosen,
            {name: len(indices) for name, indices in removed_neurons.items()},
            removed_layers,
            {name: [round(value, 6) for value in values.tolist()] for name, values in importance.items()},
            drawn,
            parameters,
            metrics,
            before.examples,
            job.speeds(pruned),
            ranks,
            until or None,
            losses,
            alike,
        )

    if finetune is None:
        with replacing_folder(folder, PRUNED.check if overwrite else refuse) as beside:
            pruned = _saved(run, model, beside, folder)
            metrics["pruned"] = job.evaluated(pruned).metrics
            return _reported(result(pruned), sizes, beside)
    first = _not_finetuned(folder)
    with replacing_folder(first, SHRUNK.check if overwrite else refuse) as beside:
        pruned = _saved(run, model, beside, first)
    metrics["pruned"] = job.evaluated(pruned).metrics
    _finetune(pruned, folder, finetune, changes, overwrite, device, console)
    pruned = load(folder, device)
    metrics["finetuned"] = job.evaluated(pruned).metrics
    return _reported(result(pruned), sizes, folder)


def _check_measure(by: By | None, share: bool) -> None:
    """Raise ValueError for an unknown measure of importance, and for one without a share to choose by it."""
    if by is not None and by not in METHODS:
        raise ValueError(f"there is no measure of importance {brief(by)}; {nearest(by, METHODS)}")
    if by is not None and not share:
        raise ValueError(
            f"the measure of importance ({by}) chooses a share of the heads, and no share is given; give one, such as 30%, "
            "or a growth of the loss (until), or leave the measure out"
        )


def _check_finetuning(run: Run, finetune: str | int | None, changes: Sequence[str]) -> None:
    """Raise ValueError if the recipe can't be changed so, and for settings without a fine-tuning."""
    if finetune is not None:
        recipe_of(run).change(_finetuning(run, finetune, changes))
    elif changes:
        raise ValueError(
            "settings of the recipe are for the fine-tuning; give a time or a number of steps for it as well"
        )


def _reported(result: PruningResult, sizes: Mapping[str, int], folder: Path) -> PruningResult:
    """Write a result and its page into a folder."""
    write_text(folder / PRUNING, result.to_json())
    write_page(result, sizes, folder)
    return result


def _not_finetuned(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-not-finetuned")


class _Job:
    """A run to prune, with the batches to measure on."""

    def __init__(self, run: Run, console: Console, examples: int) -> None:
        spec_of(run.model)
        self.run, self.recipe, self.console, self.limit = run, recipe_of(run), console, examples
        assert isinstance(run.model, TransformerModel)
        self.model: TransformerModel = run.model
        self.layers: dict[str, AttentionLayer] = {}

    def check(
        self, heads: float | Heads, until: float, keep: Heads | None, neurons: float, layers: int, rank: Rank | None
    ) -> dict[str, list[int]] | None:
        """Return the heads that were given by name, or None for a share. Raises ValueError for what can't be removed."""
        if not 0 <= until < math.inf:
            raise ValueError(f"until is a growth of the loss above 0 (such as 5%), not {until}")
        if until and (heads or keep):
            raise ValueError("until chooses the heads; leave out the heads to remove and to keep")
        share_of_heads = heads if isinstance(heads, float | int) else 0.0
        for name, share in (("heads", share_of_heads), ("neurons", neurons)):
            if not 0 <= share < 1:
                raise ValueError(f"{name} is a share from 0 to below 1 (such as 30%), not {share}")
        if layers < 0:
            raise ValueError(f"layers is a number of layers to remove, not {layers}")
        if rank is not None:
            ranks_of(self.model, rank)
        elif not heads and not until and not keep and not neurons and not layers:
            raise ValueError("nothing would be removed; give heads, neurons, layers or a rank, such as --heads 30%")
        if heads or until or keep:
            self.layers = attention_layers(self.model)
        if neurons and not feedforward_layers(self.model):
            raise ValueError(
                "this model has no plain feed-forward layer, and only their neurons can be removed; leave out --neurons"
            )
        if keep is not None:
            if heads:
                raise ValueError("give heads to remove or heads to keep, not both")
            kept = check_heads(self.model, keep)
            return {name: [h for h in range(self.layers[name].n_heads) if h not in some] for name, some in kept.items()}
        if isinstance(heads, float | int):
            return None if heads or until else {}
        return check_heads(self.model, heads)

    def importance(self, by: By) -> dict[str, Tensor]:
        """The importance of every head."""
        if by == "ablation":
            held = batches(self.run, "validation", self.limit)
            return head_ablation(self.model, lambda m: loss_over(self.recipe, m, held), self.layers, self._tell)
        read = batches(self.run, "train", self.limit)
        if by == "gates":
            steps = repeated(read, _GATE_STEPS)
            return gate_importance(self.model, steps, mean_loss(self.recipe), self.layers, tell=self._tell)
        names = {name: layer.site for name, layer in self.layers.items()}
        return normalized(gradient_importance(self.model, read, sum_loss(self.recipe), names))

    def curve(self, importance: Mapping[str, Tensor]) -> list[tuple[float, dict[str, float]]]:
        """Loss and metrics on the validation split with growing shares of the heads at zero."""
        points: list[tuple[float, dict[str, float]]] = []
        for share in _CURVE:
            without = least_heads(importance, self.layers, share)
            removed = sum(map(len, without.values())) / sum(layer.n_heads for layer in self.layers.values())
            if points and removed == points[-1][0]:
                continue  # of few heads, several shares are as many
            self._tell(f"without {share:.0%} of the heads")
            with ExitStack() as stack:
                changes = {self.layers[name].site: Zero(heads=some) for name, some in without.items()}
                stack.enter_context(intervene(self.model, changes))
                evaluated = evaluate_run(self.run, "validation", max_examples=min(self.limit, 256))
            points.append((removed, evaluated.metrics))
        return points

    def until(
        self, importance: Mapping[str, Tensor], growth: float
    ) -> tuple[dict[str, list[int]], list[tuple[int, float]]]:
        """The least important heads without which the loss on the validation split grows by a share at most, and the loss
        without each number of heads, up to the first that is above."""
        held = batches(self.run, "validation", self.limit)
        without: dict[str, list[int]] = {}
        losses = [(0, loss_over(self.recipe, self.model, held))]
        most, removed = losses[0][1] + growth * abs(losses[0][1]), 0
        for name, heads in removal_order(importance, self.layers):
            more = {**without, name: sorted([*without.get(name, []), *heads])}
            self._tell(f"without {removed + len(heads)} heads")
            with intervene(self.model, {self.layers[at].site: Zero(heads=some) for at, some in more.items()}):
                loss = loss_over(self.recipe, self.model, held)
            losses.append((removed + len(heads), loss))
            if not loss <= most:
                break
            without, removed = more, removed + len(heads)
        if not without:
            grown = f"by {losses[1][1] / losses[0][1] - 1:.1%}" if len(losses) > 1 else "without end"
            raise ValueError(
                f"without even its least important head, the loss grows {grown}, more than {growth:.1%}; allow more growth"
            )
        return without, losses

    def redundancy(self) -> dict[str, Redundancy]:
        """How alike the outputs of the heads are."""
        self._tell("comparing heads")
        return redundancy(self.model, batches(self.run, "validation", self.limit), sum_loss(self.recipe), self.layers)

    def removed(
        self, heads: Heads, neurons: float, layers: int
    ) -> tuple[TransformerModel, dict[str, list[int]], dict[str, list[int]]]:
        """The smaller model, and the neurons and layers that it lacks."""
        least: dict[str, list[int]] = {}
        if neurons:
            paths = feedforward_layers(self.model)
            sites = {
                path.replace(".blocks", ""): f"{path}.feedforward.neurons".replace("blocks", "layers") for path in paths
            }
            read = batches(self.run, "train", self.limit)
            least = least_neurons(gradient_importance(self.model, read, sum_loss(self.recipe), sites), neurons)
        whole: dict[str, list[int]] = {}
        if layers:
            held = batches(self.run, "validation", self.limit)
            counts = {name: len(stack.blocks) for name, stack in self.model.spec.stacks()}
            cost = layer_ablation(self.model, lambda m: loss_over(self.recipe, m, held), counts, self._tell)
            whole = least_layers(cost, layers)
        model = remove_heads(self.model, heads) if heads else self.model
        model = remove_neurons(model, least) if least else model
        return remove_layers(model, whole) if whole else model, least, whole

    def factorized(self, model: TransformerModel, rank: Rank | None) -> tuple[TransformerModel, dict[str, int]]:
        """The model with products of low rank in place of matrices, and the rank of each, by the path of its layer."""
        if rank is None:
            return model, {}
        self._tell("factorizing")
        ranks = ranks_of(model, rank)
        read = batches(self.run, "train", self.limit)
        covariances = input_covariances(model, ranks, read, sum_loss(self.recipe))
        return factorize(model, ranks, covariances), ranks

    def evaluated(self, run: Run) -> Evaluated:
        """The metrics of a run on the test split of the recipe."""
        self._tell("evaluating")
        run = replace(run, recipe=self.recipe)
        return evaluate_run(run, "test")

    def speeds(self, pruned: Run) -> dict[str, float]:
        """The speed of the run before and after."""
        self._tell("measuring speed")
        return speeds(self.run, pruned)

    def _tell(self, text: str) -> None:
        if self.console.is_terminal:
            self.console.print(f"  {text}", style="dim", end="\r\x1b[K")


def _check_folder(folder: Path, run: Run, overwrite: bool, staged: bool) -> None:
    """Raise ValueError for a directory that is not free, and for that of the run itself; OSError if the disk has no room."""
    folders = {folder: PRUNED} | ({_not_finetuned(folder): SHRUNK} if staged else {})
    if run.path is not None and run.path.resolve() in [path.resolve() for path in folders]:
        raise ValueError(f"{run.path} is the run that is pruned; choose another directory, such as {run.path}-pruned")
    for path, contents in folders.items():
        check_replaceable(path, contents.check if overwrite else refuse)
    check_room(folder, sum(tensor.nbytes for tensor in run.model.state_dict().values()) * len(folders))


def _saved(run: Run, model: TransformerModel, beside: Path, folder: Path) -> Run:
    """Write the smaller model, which will be in `folder`, as a run whose recipe continues from it."""
    own = recipe_of(run).model_copy(
        update={
            "model": ModelChoice(directory=str(folder.resolve())),
            **dict.fromkeys(("vectors", "adapter", "tokenizer", "source_tokenizer")),
        }
    )
    replace(run, model=model, recipe=own).save(beside, "qkv")
    return load(beside, model.device)


def _finetune(
    run: Run,
    out: Path,
    length: str | int,
    changes: Sequence[str],
    overwrite: bool,
    device: str | torch.device,
    console: Console,
) -> None:
    """Train a pruned run by its recipe, for a time or a number of steps."""
    recipe = recipe_of(run).change(_finetuning(run, length, changes))
    train(recipe, out, overwrite=overwrite, device=device, console=console)


def _finetuning(run: Run, length: str | int, changes: Sequence[str]) -> list[str]:
    """The changes of the run's recipe for a fine-tuning."""
    recipe: Recipe = recipe_of(run)
    by_steps = isinstance(length, int) or str(length).isdecimal()
    rate = recipe.training.optimizer.lr / 3
    schedule = "{kind: linear, warmup: 20" + ("}" if by_steps else ", unit: time}")
    defaults = [
        "training.max_epochs=null",
        "training.patience=null",
        f"training.max_steps={length if by_steps else 'null'}",
        f"training.max_time={'null' if by_steps else length}",
        f"training.optimizer.lr={rate:.3g}",
        f"training.schedule={schedule}",
    ]
    return [*without_replaced(defaults, changes), *changes]
