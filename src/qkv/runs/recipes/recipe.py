"""`Recipe`: the configuration of an experiment (data, model, training, evaluation), read from YAML with overrides."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError

from ...core import several, yamls
from ...core.metrics.display import display_of
from ...core.registry import import_installed
from ...core.spec import Spec, brief, counted, nearest
from ...data.batching.settings import Batching
from ...data.source import Source
from ...data.task import Task
from ...data.tokenizers import from_file  # noqa: F401  (registers the kind `file`)
from ...data.tokenizers.protocol import Encoder
from ...data.tokenizers.training.spec import TokenizerSpec
from ...generation import Generation
from ...io import families
from ...io.directories.layout import RECIPE, read_text
from ...nn.layers.lora import Adapter
from ...nn.models.base import ModelSpec
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.heads.base import Head
from ...nn.models.heads.sequence import SentenceVector, SequenceClassifier
from ...nn.models.heads.series import Forecaster
from ...nn.models.heads.text import Span, TokenClassifier
from ...nn.models.long_texts import has_global_tokens
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...training.objective import Objective, SequenceToSequence
from ...training.parallel.scale import Scale
from ...training.settings import Training
from .. import tasks  # noqa: F401  (tasks registers the kinds of data, tasks and objectives)
from . import continued, continued_generation, no_effect, overrides, places
from . import imports as recipe_imports
from .evaluation import Evaluation
from .imports import import_named, imports_of
from .keys import explained, keys, spec_at
from .model_choice import PRESET, REPLACE, ModelChoice
from .packaged import packaged
from .sizes import kept_sizes, preset_note, recipe_of_preset, sizes_of
from .synonyms import recipe_for, settings_in_ours, tree_in_ours
from .vectors import StaticVectors

_OF_ONE_STACK = (SequenceClassifier, TokenClassifier, Span, SentenceVector)  # heads for a single stack
LENGTHS = ("max_steps", "max_epochs")  # an override of one replaces the other
FROM_DATA = ("head", "source_vocab_size", "tie_embeddings")  # changes to the model that `resolve_data` makes
MEDIA = "decoder.embedding.media."  # what those of media begin with
COMPARE, MEASURE = "compare", "measure"  # keys that turn a recipe into a comparison, see `Comparison`
ABLATE = "ablate"  # the variants that `qkv ablate` trains by default, see `Ablation`
SCALING = "scaling"  # the ladder that `qkv scaling` trains, see `Study`
TUNE = "tune"  # the space that `qkv tune` searches, see `Tuning`
BESIDE = (COMPARE, MEASURE, ABLATE, SCALING, TUNE)  # keys of a recipe's file that are not part of the recipe


class Recipe(Spec):
    """name: of the experiment, and by default of its run directory. description: one line for `qkv list recipes`.

    imports:    modules, or files such as `parts.py`, that define parts of this recipe outside qkv.
    data:       where examples come from.
    task:       the kind of problem, such as classification; None for language modeling and translation.
    tokenizer:  trained on the texts of the training split, before the model; None if no text is read.
    source_tokenizer: a tokenizer trained on the sources of pairs only, with its own vocabulary; `tokenizer` is then trained
                on the targets only. None: one vocabulary for both.
    model:      a preset with sizes and changes, or a trained model to fine-tune, see `ModelChoice`.
    head:       replaces the model's own head; gets as many labels as the data have.
    vectors:    pretrained word vectors for the token embedding, see `StaticVectors`.
    adapter:    trained in place of the model's own weights, see `LoRA`.
    objective:  the loss function.
    batching:   how examples become batches.
    training:   optimizer, schedule, limits, checkpoints.
    scale:      how training is distributed over several processes, see `Scale`.
    evaluation: what is measured, during training and after it.
    generation: how outputs are generated, in evaluation and by default by the trained model.
    seed:       for weights, dropout and the order of the data.
    """

    name: str = Field(pattern=r"^[\w.-]+$")
    description: str = ""
    imports: tuple[str, ...] = ()
    data: Source
    task: Task | None = None
    tokenizer: TokenizerSpec | None = None
    source_tokenizer: TokenizerSpec | None = None
    model: ModelChoice
    head: Head | None = None
    vectors: StaticVectors | None = None
    adapter: Adapter | None = None
    objective: Objective
    batching: Batching = Batching()
    training: Training = Training()
    scale: Scale = Scale()
    evaluation: Evaluation = Evaluation()
    generation: Generation = Generation()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @classmethod
    def load(cls, name: str | Path, settings: Iterable[str] = (), *, imports: bool = True) -> Self:
        """Load a recipe by its name, file or run directory, and apply `key=value` settings. A string that names a shipped
        recipe is that recipe; a file or directory of the same name is `./name`, or a `Path`.

        For a comparison, an ablation or a scaling study, load the recipe that all runs share. The modules under `imports`
        are imported, unless `imports` is false. Raises ValueError for an unknown recipe or key, with the nearest known ones.
        """
        loaded = override(tree(name, imports=imports), settings)
        shared = {key: value for key, value in loaded.items() if key not in BESIDE}
        return cls.from_tree(shared, imports=imports)

    @classmethod
    def from_tree(cls, data: object, *, imports: bool = True) -> Self:
        """Validate a recipe's tree, as read from YAML. Raises ValueError with one sentence for each mistake."""
        if not isinstance(data, dict):
            raise ValueError(f"a recipe is a mapping of keys to values, not {type(data).__name__}")
        if "imports" in data:
            data = {**data, "imports": imports_of(data)}
            if imports:
                import_named(data["imports"], str(data.get("name", "the recipe")))
        data = tree_in_ours(data, cls)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ValueError(explained(error, data, cls)) from None

    def change(self, settings: Iterable[str]) -> Self:
        """This recipe with `key=value` settings applied. Of the modules under `imports`, only those that the settings add
        are imported: `qkv.load` may have read this recipe without running its code."""
        changed = override(_without_defaults(self, self.to_dict()), settings)
        import_named([name for name in imports_of(changed) if name not in self.imports], self.name)
        return type(self).from_tree(changed, imports=False)

    @property
    def vocab_size(self) -> int:
        """The largest vocabulary that the tokenizer may learn; 0 for a trained model, which has its own."""
        if self.model.directory or self.tokenizer is None:
            return 0
        return _largest_vocabulary(self.tokenizer)

    def spec(self) -> ModelSpec:
        """The model's spec for the largest vocabularies that the tokenizers may learn."""
        return self.with_source_vocabulary(_largest_vocabulary(self.source_tokenizer)).model.spec(self.vocab_size)

    def with_source_vocabulary(self, size: int) -> Self:
        """Return the recipe with a separate embedding table for `size` source tokens if there is a `source_tokenizer`.

        Raises ValueError if the rest of the recipe does not allow one.
        """
        if self.source_tokenizer is None:
            return self
        if self.tokenizer is None or self.task is not None or self.model.directory or self.vectors is not None:
            raise ValueError(
                "source_tokenizer works only with an encoder–decoder trained from scratch on pairs, with a tokenizer for "
                "targets and without task and vectors; leave it out, or leave those out and give tokenizer=bpe"
            )
        if not self.model.spec(self.vocab_size).is_encoder_decoder:
            raise ValueError(
                "source_tokenizer needs an encoder–decoder, which reads sources and targets separately; leave it out, or "
                "use model=transformer with objective=sequence-to-sequence"
            )
        if self.model.changes.get("tie_embeddings"):
            raise ValueError("two vocabularies can't share an embedding; leave out tie_embeddings or source_tokenizer")
        changes = {**self.model.changes, "source_vocab_size": size, "tie_embeddings": False}
        return self._with_model(changes=changes)

    def resolve(self, vocab_size: int) -> Self:
        """Make every value explicit that another version or machine could choose differently: the preset's sizes, the
        absolute paths of data and of a trained model, and the learning rate of fine-tuning."""
        recipe = self._with_absolute_paths()
        if self.model.directory:
            path = Path(self.model.directory).expanduser()
            recipe = recipe._with_model(directory=str(path.resolve()) if path.is_dir() else self.model.directory)
            generation = continued_generation.completed(recipe.generation, self.model.directory, recipe.name)
            recipe = recipe.model_copy(update={"generation": generation})
            return recipe._with_tuning_rate() if self.tunes_by_default else recipe
        defaults = sizes_of(self.model.preset)
        vocabulary = {"vocab_size": vocab_size} if "vocab_size" in defaults else {}
        sizes = {**defaults, **vocabulary, **self.model.sizes}
        return recipe._with_model(sizes={k: size for k, size in sizes.items() if size is not inspect.Parameter.empty})

    def _with_absolute_paths(self) -> Self:
        trees = {name: part.to_dict() for name in ("data", "vectors", "tokenizer") if (part := getattr(self, name))}
        placed = places.here(trees)
        changes = {name: getattr(self, name).from_dict(placed[name]) for name in trees if placed[name] != trees[name]}
        return self.model_copy(update=changes)

    def _with_model(self, **fields: Any) -> Self:
        return self.model_copy(update={"model": self.model.model_copy(update=fields)})

    @property
    def tunes_by_default(self) -> bool:
        """Whether a trained model is fine-tuned at the default learning rate."""
        return self.model.directory is not None and "lr" not in self.training.optimizer.model_fields_set

    def _with_tuning_rate(self) -> Self:
        """Set the optimizer's default learning rate for fine-tuning a model of this width."""
        width = getattr(self.model.spec(), "d_model", None) or 768
        optimizer = self.training.optimizer.tuning(width, self.adapter is not None)
        return self.model_copy(update={"training": self.training.model_copy(update={"optimizer": optimizer})})

    def resolve_data(self, tokenizer: Encoder | None) -> Self:
        """Fill in what depends on the data: the task's classes, and the number of labels of the head.

        Raises ValueError if task, head and data don't fit together.
        """
        sources = getattr(tokenizer, "sources", None)
        if self.source_tokenizer is not None and sources is not None:
            return self.with_source_vocabulary(sources.vocab_size)._resolve_data(tokenizer)
        return self._resolve_data(tokenizer)

    def _resolve_data(self, tokenizer: Encoder | None) -> Self:
        spec, directory = self.model.spec(self.vocab_size), self.model.directory
        if isinstance(self.objective, SequenceToSequence) and not spec.is_encoder_decoder:
            raise ValueError(
                f"the objective {self.objective.kind!r} needs an encoder–decoder, which reads second texts as targets; for "
                "a decoder, which reads both as one text, give objective=next-token"
            )
        higher = display_of(self.training.metric).higher_is_better
        right = self.training.mode if higher is None else "max" if higher else "min"
        if right != self.training.mode:
            raise ValueError(
                f"training.mode is {brief(self.training.mode)}, but {'higher' if higher else 'lower'} "
                f"{self.training.metric} is better; give training.mode={right}"
            )
        if self.task is None:
            return self if self.head is None else self._with_head(self.head)
        self.evaluation.check_task(self.task.kind)
        first = self._first_stack(self.task, spec)
        given = self.task
        if directory is not None:
            given = continued.with_length(continued.with_scaling(given, directory), tokenizer)
        task = given.of_model(spec).resolve(self.data, tokenizer, first.embedding)
        if directory is not None and not getattr(self.task, task.outputs, ()):
            task = continued.with_numbering(task, directory)
        task = task.with_global_tokens() if has_global_tokens(first) else task
        metric = task.measured(self.training.metric, self.data)
        if (why := task.why_missing(metric)) is not None:
            raise ValueError(f"training.metric is {brief(metric)}, but {why}")
        training = self.training.model_copy(update={"metric": metric})
        recipe = self.model_copy(update={"task": task, "training": training})
        if not isinstance(spec, Transformer):
            return recipe
        recipe = recipe._with_model(changes={**self.model.changes, **task.model_changes(tokenizer)})
        head, n = continued.pooling_last(self.head, spec, directory) or spec.head, task.n_labels
        if n is not None and head is not None and "labels" in type(head).model_fields:
            if self.head is not None and "labels" in self.head.model_fields_set and self.head.n_labels != n:
                labels = counted(n, "label")
                raise ValueError(f"head.labels is {self.head.n_labels}, but the data have {labels}; leave it out")
            counts = {"labels": n}
            if isinstance(head, Forecaster) and "patches" not in head.model_fields_set and first.embedding.grid:
                counts["patches"] = first.embedding.grid.patches
            return recipe._with_head(head.replace(counts))
        return recipe if self.head is None or head is None else recipe._with_head(head)

    def _first_stack(self, task: Task, spec: ModelSpec) -> Stack:
        """The stack that reads what the task makes of an example. Raises ValueError if the model is none for the task."""
        if isinstance(spec, DualEncoder):
            if not task.pairs_towers or self.head is not None:
                what = (
                    f"the task {task.kind} needs a Transformer" if self.head is None else f"the head {self.head.kind}"
                )
                raise ValueError(
                    f"{what}, and this model is a {spec.kind} of two; give it the task retrieve and no head"
                )
            return spec.image.output
        if task.pairs_towers or not isinstance(spec, Transformer):
            needs = "a dual-encoder (model=clip)" if task.pairs_towers else "a Transformer"
            raise ValueError(f"the task {task.kind} needs {needs}, and this model is a {spec.kind}; choose another")
        self._check_stacks(task, spec)
        return spec.encoder or spec.output

    def _check_stacks(self, task: Task, spec: Transformer) -> None:
        """Raise ValueError if the model lacks what the head or the task needs."""
        if spec.is_encoder_decoder and isinstance(self.head, _OF_ONE_STACK):
            raise ValueError(
                f"the head {self.head.kind} needs a single encoder or decoder, and this model has both; choose another "
                "model, or generate the answer as text (objective=sequence-to-sequence, with data of pairs)"
            )
        if getattr(task, "next_sentence", False) and getattr(spec.classification_head, "labels", None) is None:
            raise ValueError(
                "next-sentence prediction needs a pooler and a classifier, which this model lacks; add them "
                "(model.pooler=true model.labels=2), or train without sentence pairs (task.next_sentence=false)"
            )

    def resolve_data_as(self, other: Self) -> Self:
        """Take over the task, head and model fields that another recipe was resolved to, if this one leaves them
        out."""
        changes: dict[str, Any] = {}
        for name in ("task", "head"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and type(mine) is type(theirs):
                unset = type(mine).model_fields.keys() - mine.model_fields_set
                changes[name] = mine.replace({key: getattr(theirs, key) for key in unset})
        names = FROM_DATA if self.source_tokenizer is not None else ("head",)
        theirs = other.model.changes
        names = (*names, *(name for name in theirs if name.startswith(MEDIA)))
        adopted = {name: theirs[name] for name in names if name in theirs and name not in self.model.changes}
        if "head" in adopted:
            changes["head"] = other.head
        return self.model_copy(update=changes)._with_model(changes={**self.model.changes, **adopted})

    def _with_head(self, head: Head) -> Self:
        """Return the recipe with this head, in `head` and among the changes to the model."""
        recipe = self._with_model(changes={**self.model.changes, "head": head.to_dict()})
        return recipe.model_copy(update={"head": head})

    def to_yaml(self) -> str:
        """The text of a run directory's `recipe.yaml`; `Recipe.load` reads it back to an equal value."""
        return yamls.dump(self.to_dict())


def _largest_vocabulary(tokenizer: TokenizerSpec | None) -> int:
    """The largest vocabulary that a tokenizer may learn; 1,000 if only its texts limit it."""
    return int(getattr(tokenizer, "vocab_size", None) or 1000)


def _without_defaults(spec: Spec, tree: dict[str, Any]) -> dict[str, Any]:
    """A spec's tree with only the fields that were given, so `resolve_data` can fill in the others from new data."""
    if tree.keys() - {"kind"} != type(spec).model_fields.keys():  # a special form, as that of `ModelChoice`
        return tree
    explicit = {key: value for key, value in tree.items() if key == "kind" or key in spec.model_fields_set}
    parts = {key: value for key in explicit if isinstance(value := getattr(spec, key), Spec)}
    return {**explicit, **{key: _without_defaults(part, explicit[key]) for key, part in parts.items()}}


def argument_of(folder: Path) -> str:
    """A run directory as the argument of `qkv train`: `./chat`, because `chat` is a recipe."""
    return f"./{folder}" if str(folder) in packaged() else str(folder)


def tree(name: str | Path, *, imports: bool = True) -> dict[str, Any]:
    """A recipe's YAML as data, not yet validated. The modules of `qkv --import` are added to its `imports`."""
    data, added = _tree(name, imports), recipe_imports.from_command_line
    return {**data, "imports": [*imports_of(data), *added]} if added else data


def _tree(name: str | Path, imports: bool) -> dict[str, Any]:
    path, known = several.path(name, "a recipe"), packaged()
    if isinstance(name, str) and name in known:  # also if a file or directory has this name, which is ./name
        return deepcopy(_packaged_tree(name))
    if path.is_dir() and (path / RECIPE).is_file():
        path = path / RECIPE
    if path.is_file():
        data = _mapping(yamls.load(read_text(path), name=str(path)), str(path))
        if imports:
            modules = places.beside({"imports": list(imports_of(data, absolute=False))}, path)["imports"]
            import_named(modules, str(path.parent if path.name == RECIPE else path))
        import_installed()
        if (trained := _directory(data)) is not None and path.name != RECIPE:
            no_effect.warn(trained, [(key, value) for key, value in data.items() if key == "tokenizer"], data)
        return places.beside(data, path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        why = f"{path} is a folder without a {RECIPE}" if path.is_dir() else f"there is no recipe file {path}"
        raise ValueError(why)
    advice = recipe_of_preset(str(name)) or recipe_for(str(name)) or nearest(str(name), known)
    raise ValueError(f"there is no recipe {brief(str(name))}; {advice}")


@cache
def _packaged_tree(name: str) -> dict[str, Any]:
    return _mapping(yamls.load(packaged()[name], name=f"the recipe {name}"), f"the recipe {name}")


def override(recipe: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A recipe's tree with `key=value` settings. A part of which they change the kind (`data.kind=images`) keeps the values
    that the new kind has too. A preset that they name takes its own sizes, see `kept_sizes`, and a warning says so."""
    recipe, settings = tree_in_ours(recipe, Recipe), settings_in_ours(recipe, settings, Recipe)
    paths = [overrides.parse(setting)[0].split(".") for setting in settings]
    changed = overrides.apply(_without_other_length(recipe, paths), settings)
    for *path, last in paths:
        before, node = _at(recipe, path), _at(changed, path)
        if last not in ("kind", PRESET) or not path or before is None or node is None:
            continue
        explicit = {key for other in paths if other[: len(path)] == path for key in other[len(path) :][:1]}
        if last == PRESET:
            changed = _with_preset(changed, before, explicit)
        elif before.get(last) != node[last]:
            known = {key.rpartition(".")[2] for key in keys(changed, path, Recipe)}
            for key in before.keys() - known - explicit:
                changed = overrides.without(changed, [*path, key])
    changed = _for_another_task(recipe, changed, paths)
    trained, directory = _directory(recipe), _directory(changed)
    if directory is not None:
        no_effect.warn(directory, map(overrides.parse, settings), changed)
    if directory is not None and directory != trained:
        changed = continued.in_tree(changed, directory, paths)
        changed = continued_generation.in_tree(changed, directory, paths)
    if trained is not None or directory is None:
        return changed
    return _within_the_context(_for_a_trained_model(changed, paths), paths)


def _with_preset(changed: dict[str, Any], before: dict[str, Any], explicit: set[str]) -> dict[str, Any]:
    """A preset that settings name keeps its own sizes, except the sizes that settings give beside it (`explicit`)."""
    preset = changed["model"][PRESET]
    if not isinstance(preset, str) or preset not in families.presets():
        return changed
    sizes = {key: value for key, value in before.items() if key not in (PRESET, REPLACE, *explicit)}
    kept = kept_sizes(preset, sizes)
    dropped = {key: value for key, value in sizes.items() if key not in kept}
    beside = {key: value for key, value in changed["model"].items() if key not in dropped}
    if (dropped or preset != before.get(PRESET)) and (note := preset_note(preset, beside, dropped)):
        warnings.warn(note, stacklevel=4)
    for key in dropped:
        changed = overrides.without(changed, ["model", key])
    return changed


def _for_another_task(recipe: dict[str, Any], changed: dict[str, Any], paths: list[list[str]]) -> dict[str, Any]:
    """If settings change the kind of task, use the new task's defaults for the rest, unless settings give that too."""
    kinds = [node.get("kind") if isinstance(node := tree.get("task"), dict) else node for tree in (recipe, changed)]
    if None in kinds or kinds[0] == kinds[1]:
        return changed
    for part, defaults in getattr(spec_at(changed, ["task"], Recipe), "recipe_defaults", {}).items():
        own = _at(changed, [part]) or {}
        if part == "training":
            unset = {key: value for key, value in defaults.items() if [part, key] not in paths}
            changed = {**changed, part: {**own, **unset}}
        elif own.get("kind") != defaults["kind"] and not any(path[0] == part for path in paths):
            changed = {**changed, part: defaults}
    return changed


def _for_a_trained_model(changed: dict[str, Any], paths: list[list[str]]) -> dict[str, Any]:
    """Drop the recipe's learning rate if settings replace its untrained model by a trained one: the rate was chosen for
    training from scratch. It stays if parameters are frozen, since the others are then new."""
    optimizer = _at(changed, ["training", "optimizer"])
    explicit = any(["training", "optimizer", "lr"][: len(path)] == path for path in paths)
    if explicit or optimizer is None or "lr" not in optimizer or optimizer.get("freeze"):
        return changed
    kept = {key: value for key, value in optimizer.items() if key not in ("lr", "adamw_lr")}
    return {**changed, "training": {**changed["training"], "optimizer": kept}}


def _within_the_context(changed: dict[str, Any], paths: list[list[str]]) -> dict[str, Any]:
    """Limit the length of rows to the context of the trained model that settings put in, unless they give a length. An
    error in the model is left to validation."""
    batching = changed.get("batching") or {}
    try:
        spec = ModelChoice.model_validate(changed["model"]).spec()
    except (ValueError, OSError):
        return changed
    name = "max_length" if spec.is_encoder_decoder else "context"
    length, longest = batching.get(name, Batching.model_fields[name].default), spec.max_positions
    if ["batching", name] in paths or ["batching"] in paths or not isinstance(length, int):
        return changed
    if longest is None or length <= longest:
        return changed
    return {**changed, "batching": {**batching, name: longest}}


def _directory(tree: Any) -> str | None:
    """The directory of the trained model of a recipe's tree; None if it has none."""
    try:
        return ModelChoice.model_validate(tree.get("model")).directory
    except ValidationError:
        return None


def _without_other_length(recipe: dict[str, Any], paths: list[list[str]]) -> dict[str, Any]:
    """Drop the recipe's length in steps if a setting gives one in epochs, and the other way round."""
    explicit = [name for name in LENGTHS if ["training", name] in paths]
    training = recipe.get("training")
    if len(explicit) != 1 or not isinstance(training, dict):
        return recipe
    return {**recipe, "training": {k: value for k, value in training.items() if k in explicit or k not in LENGTHS}}


def _at(data: Any, path: list[str]) -> dict[str, Any] | None:
    """The mapping at a path, or None."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else None


def _mapping(data: Any, name: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{name} is not a recipe: a recipe is a mapping of keys to values")
    return data
