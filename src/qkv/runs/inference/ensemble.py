"""`qkv.ensemble`: several runs as one, which predicts by the mean of their probabilities."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ...core import several
from ...core.spec import brief
from ...data.tokenizers.tokenizer import Tokenizer
from ...nn.layers.embedding import Embedding
from ...nn.layers.patches import Patches
from ...nn.models.ensemble import EnsembleModel, Mode
from ...nn.models.transformer import Transformer
from .classify import is_multi_label, labels_of
from .loaded import difference
from .run import Run


@dataclass(frozen=True, repr=False)
class Ensemble(Run):
    """Runs as one, made by `ensemble`. The first of the `runs` gives the settings of generation, recipe and task."""

    runs: tuple[Run, ...] = ()

    @property
    def name(self) -> str:
        """The names of the runs, for messages."""
        *names, last = [run.name for run in self.runs]
        return f"the ensemble of {', '.join(names)} and {last}"

    def save(self, *args: object, **options: object) -> NoReturn:
        """Raise ValueError: an ensemble is several models, and a directory holds one."""
        raise self._only_of_one("saved")

    def quantize(self, *args: object, **options: object) -> NoReturn:
        """Raise ValueError: runs are quantized before they become an ensemble."""
        raise self._only_of_one("quantized")

    def dequantize(self) -> NoReturn:
        """Raise ValueError: runs are dequantized before they become an ensemble."""
        raise self._only_of_one("dequantized")

    def embed(self, *args: object, **options: object) -> NoReturn:
        """Raise ValueError: vectors of different models have nothing in common."""
        raise self._only_of_one("asked for embeddings")

    def embed_array(self, *args: object, **options: object) -> NoReturn:
        """Raise ValueError, see `embed`."""
        raise self._only_of_one("asked for embeddings")

    def look(self, *args: object, **options: object) -> NoReturn:
        """Raise ValueError: each run has its own attention."""
        raise self._only_of_one("looked into")

    def record(self, *args: object, **options: object) -> NoReturn:
        """Raise ValueError: each run has its own activations."""
        raise self._only_of_one("looked into")

    def intervene(self, *args: object, **options: object) -> NoReturn:
        """Raise ValueError: each run has its own activations."""
        raise self._only_of_one("changed")

    def _only_of_one(self, what: str) -> ValueError:
        return ValueError(f"an ensemble can't be {what}; give one of its runs, such as {self.runs[0].name}")


def ensemble(runs: Sequence[Run], weights: Sequence[float] | None = None, mode: Mode = "linear") -> Run:
    """Return a run whose probabilities are the mean over several runs, see `EnsembleModel`.

    It generates (greedily, by sampling or beams), scores, fills, classifies and tags as a single run does, with the settings
    of the first. Each run keeps its own cache. `weights` are one positive number for each run, by default equal; `mode` is
    "linear", or "log_linear" for the mean of log-probabilities.

    Raises ValueError for runs that read or predict different things: another tokenizer, other classes, other inputs.
    """
    first, *others = runs = _listed(runs)
    for other in others:
        _check(first, other)
    model = EnsembleModel([run.model for run in runs], weights, mode, is_multi_label(first)).eval()
    about = (first.generation, first.task, first.recipe, first.path, first.origin, first.allow_pickle, first.grammar)
    return Ensemble(model, first.tokenizer, *about, tuple(runs))


def _listed(runs: Run | Sequence[Run]) -> list[Run]:
    if isinstance(runs, str) or not isinstance(runs, Run | Sequence):
        raise ValueError(f"an ensemble is of runs such as qkv.load(…), not {several.shown(runs)}")
    listed = [runs] if isinstance(runs, Run) else list(runs)
    if odd := [run for run in listed if not isinstance(run, Run)]:
        raise ValueError(f"an ensemble is of runs such as qkv.load(…), not {several.shown(odd[0])}")
    if len(listed) < 2:
        raise ValueError(f"an ensemble has at least two runs, not {len(listed)}; give a list of runs")
    return listed


def _check(first: Run, other: Run) -> None:
    """Raise ValueError, naming the difference, for a run that doesn't read and predict the same as the first."""
    if found := _difference(first.tokenizer, other.tokenizer):
        raise ValueError(
            f"{other.name} has another tokenizer than {first.name}: {found}; an ensemble needs runs with the same one, and "
            "`qkv train … 'tokenizer={kind: file, path: RUN}'` takes that of a run"
        )
    if first.model.device != other.model.device:
        raise ValueError(
            f"{first.name} is on {first.model.device} and {other.name} on {other.model.device}; load both with the same "
            "device="
        )
    for what, mine, theirs in zip(_NAMES, _signature(first), _signature(other), strict=True):
        if mine != theirs:
            raise ValueError(
                f"{other.name} differs from {first.name} in {what}, {brief(theirs)} and not {brief(mine)}; an ensemble "
                "needs runs that read and predict the same"
            )


def _difference(mine: Tokenizer | None, theirs: Tokenizer | None) -> str | None:
    """The first difference of two tokenizers: their tokens, or the rules that split a text."""
    if mine is None or theirs is None:
        return None if mine is theirs else "one reads texts and the other does not"
    for own, other in ((mine, theirs), (mine.sources, theirs.sources)):
        if found := difference(own, other):
            return found
        rules, others = _rules(own), _rules(other)
        if None in (
            rules["post_processor"],
            others["post_processor"],
        ):  # what each adds to a text is compared by its ids
            del rules["post_processor"], others["post_processor"]
        if rules != others:
            return "it has the same tokens but splits texts by other rules"
    return None


def _rules(tokenizer: Tokenizer) -> dict[str, Any]:
    """What decides how a text is split and joined."""
    rules: dict[str, Any] = json.loads(tokenizer.raw.to_str())
    for name in ("truncation", "padding", "version"):
        rules.pop(name, None)
    rules["model"].pop("dropout", None)  # in training only
    return rules


_NAMES = (
    "use",
    "task",
    "classes",
    "scale of scores",
    "input",
    "token types",
    "special tokens",
    "ends of outputs",
    "start of outputs",
)


def _signature(run: Run) -> tuple[Any, ...]:
    """What runs of an ensemble have in common, in the order of `_NAMES`."""
    spec, task = run.model.spec, run.trained_on
    classes = getattr(task, "classes", None) or getattr(task, "tags", None)
    if classes is None and task is None and (count := getattr(getattr(spec, "head", None), "n_labels", None)):
        classes = labels_of(run, count)
    words: tuple[Any, ...] = (None,) * 3 if run.tokenizer is None else (run.encode("a"), run.ends, run.start)
    scale = (getattr(task, "center", None), getattr(task, "spread", None))  # of a regression
    return (run.task, None if task is None else task.kind, classes, scale, _input(run), spec.token_types, *words)


def _input(run: Run) -> str:
    """The kind of the model's input, with the shape of pictures."""
    spec = run.model.spec
    embedding = (spec.encoder or spec.output).embedding if isinstance(spec, Transformer) else Embedding()
    if not isinstance(embedding, Patches):
        return embedding.kind
    height, width = embedding.image
    return f"pictures of {height} × {width} pixels and {embedding.channels} channels"
