"""A recipe: everything about an experiment in one file, so that the file is the experiment."""

from __future__ import annotations

import importlib.resources
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_serializer, model_validator

from .. import (
    families,
    tasks,  # noqa: F401  (their kinds)
)
from .. import tasks as objectives  # noqa: F401  (their kinds)
from ..core import yamls
from ..core.installed_parts import import_installed
from ..core.spec import Spec, explain, nearest
from ..data.batching.settings import Batching
from ..data.readers import parallel_text as pairs  # noqa: F401  (their kinds)
from ..data.source import Source
from ..data.synthetic import (  # noqa: F401  (their kinds)
    localise as cldr,
)
from ..data.task import Task
from ..directories.layout import RECIPE, read_text
from ..directories.spec import spec_of
from ..generation import Generation
from ..layers.lora import Adapter
from ..metrics.display import display_of
from ..models.heads.sequence import SentenceVector, SequenceClassifier
from ..models.heads.series import Forecaster
from ..models.heads.text import Head, Span, TokenClassifier
from ..models.long_texts import has_global_tokens
from ..models.transformer import Transformer
from ..tokenizers.protocol import Encoder
from ..tokenizers.training.spec import TokenizerSpec
from ..training.objective import Objective, SequenceToSequence
from ..training.settings import Training
from . import imports as outside
from . import overrides, places
from .evaluation import Evaluation
from .imports import import_named, imports_of
from .keys import explained, keys, spec_at
from .sizes import check_sizes, sizes_of
from .vectors import StaticVectors

PRESET, DIRECTORY, REPLACE = "preset", "directory", "replace"
_OF_ONE_STACK = (SequenceClassifier, TokenClassifier, Span, SentenceVector)  # heads whose tasks give no target to read
LENGTHS = ("max_steps", "max_epochs")  # of a training; of the two, a setting takes the place of the other
FROM_DATA = ("head", "source_vocab_size", "tie_embeddings")  # changes to the model that come from the data
COMPARE, MEASURE = "compare", "measure"  # what makes a comparison of a recipe, see `study.Comparison`


class ModelChoice(Spec):
    """`{preset: transformer, d_model: 256, replace: {decoder.position: alibi}}`: a preset, its sizes, and changes to it.
    Or `{directory: gpt2}`: a trained model, to go on with. A bare name is a preset's, or else a directory's.

    preset:    a name of `qkv list presets`.
    directory: a run's, or one in the Hub's format, or `owner/name` on the Hub: spec, weights and tokenizer.
    sizes:     every key beside these and `replace`: what the preset's function takes (`d_model`, `n_layers` …).
    changes:   `replace`: dotted paths into the model's spec and what is to stand there, as `spec.replace` takes them.
    """

    preset: str = ""
    directory: str | None = None
    sizes: dict[str, Any] = Field(default_factory=dict)
    changes: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and not {"sizes", "changes"} & set(value):
            preset = value.get(PRESET, value.get("kind"))  # a bare name comes as a kind, see `Spec`
            words = (PRESET, DIRECTORY, REPLACE) if PRESET in value else (DIRECTORY, REPLACE, "kind")
            sizes = {key: item for key, item in value.items() if key not in words}
            rest = {name: item for name, item in ((PRESET, preset), (DIRECTORY, value.get(DIRECTORY))) if item}
            if isinstance(preset, str) and preset not in families.presets() and _is_directory(preset):
                rest = {DIRECTORY: preset}
            return {**rest, "sizes": sizes, "changes": value.get(REPLACE) or {}}
        return value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.preset) == bool(self.directory):
            raise ValueError("give a preset, or the directory of a trained model, and not both")
        if self.directory and self.sizes:
            raise ValueError(
                f"{next(iter(self.sizes))} is given by the model in {self.directory}; what it is made of can be changed "
                "by its place in the spec: model.replace={decoder.position: alibi}"
            )
        return self

    @model_serializer(mode="plain")
    def _flat(self) -> dict[str, Any]:
        if self.directory:
            return {DIRECTORY: self.directory, REPLACE: self.changes}
        return {PRESET: self.preset, **self.sizes, REPLACE: self.changes}

    def spec(self, vocab_size: int | None = None) -> Any:
        """The whole spec, for a tokenizer of this size. Raises ValueError where a name or a value is not one there is."""
        if self.directory:
            found = spec_of(self.directory)
            return found.replace({"vocab_size": max(vocab_size or 0, found.vocab_size)}).replace(self.changes)
        check_sizes(self.preset, self.sizes)
        takes = "vocab_size" in sizes_of(self.preset) if self.preset in families.presets() else True
        sizes = ({} if vocab_size is None or not takes else {"vocab_size": vocab_size}) | self.sizes
        try:
            return families.preset(self.preset, **sizes).replace(self.changes)
        except ValidationError as error:
            raise ValueError(f"model: {explain(error)}") from None


class Recipe(Spec):
    """name: of the experiment, and of its run directory by default; description: one line for `qkv list recipes`.

    imports:    modules, or files such as `parts.py`, that define parts of this recipe outside qkv.
    data:       where examples come from.
    task:       what is made of an example, where it is more than a text to go on with or a pair to translate.
    tokenizer:  what is trained on the texts of the training split before the model is; none where no text is read.
    source_tokenizer: what is trained on the sources of pairs alone, with a vocabulary of its own; `tokenizer` is then
                trained on the targets alone. None: one vocabulary for both.
    model:      a preset with sizes and changes, or a trained model to go on with, see `ModelChoice`.
    head:       what stands on the model in place of its own, with as many labels as the data have.
    vectors:    what the token embedding begins with, see `StaticVectors`.
    adapter:    what is trained in place of the model's own weights, see `LoRA`.
    objective:  what is minimized.
    batching:   how examples become batches.
    training:   optimizer, schedule, limits, checkpoints.
    evaluation: what is measured, while training and after it.
    generation: how outputs are made, in evaluation and by default in the finished run.
    seed:       of weights, dropout and the order of the data.
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
    evaluation: Evaluation = Evaluation()
    generation: Generation = Generation()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @classmethod
    def load(cls, name: str | Path, settings: Iterable[str] = (), *, imports: bool = True) -> Self:
        """A recipe by its name, its file or its run directory, with `key=value` settings applied.

        Of a comparison it is the recipe that all variants share. The modules that it names under `imports` are imported,
        unless `imports` is false. Raises ValueError that names the nearest recipe or key
        where one is unknown.
        """
        whole = given(tree(name, imports=imports), settings)
        rest = {key: value for key, value in whole.items() if key not in (COMPARE, MEASURE)}
        return cls.from_tree(rest, imports=imports)

    @classmethod
    def from_tree(cls, data: Any, *, imports: bool = True) -> Self:
        """A recipe from what its YAML holds."""
        if not isinstance(data, dict):
            raise ValueError(f"a recipe is a mapping of keys to values, not {type(data).__name__}")
        if names := imports_of(data):
            data = {**data, "imports": names}
            if imports:
                import_named(names, str(data.get("name", "the recipe")))
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ValueError(explained(error, data, cls)) from None

    def change(self, settings: Iterable[str]) -> Self:
        """This recipe with `key=value` settings applied. Of the modules under `imports`, only those that the settings add
        are imported: `qkv.load` may have read this recipe without running its code."""
        changed = given(_said(self, self.to_dict()), settings)
        import_named([name for name in imports_of(changed) if name not in self.imports], self.name)
        return type(self).from_tree(changed, imports=False)

    @property
    def vocab_size(self) -> int:
        """What the tokenizer's vocabulary may grow to: exact once it is trained. 0 where the model has its own."""
        if self.model.directory or self.tokenizer is None:
            return 0
        return _most(self.tokenizer)

    def spec(self) -> Any:
        """The model's spec for the largest vocabularies that the tokenizers may learn."""
        return self.with_source_vocabulary(_most(self.source_tokenizer)).model.spec(self.vocab_size)

    def with_source_vocabulary(self, size: int) -> Self:
        """With a table of its own for this many tokens of sources, where they have a tokenizer of their own.

        Raises ValueError where the recipe leaves no place for one.
        """
        if self.source_tokenizer is None:
            return self
        if self.tokenizer is None or self.task is not None or self.model.directory or self.vectors is not None:
            raise ValueError(
                "source_tokenizer is for an encoder–decoder trained from nothing on pairs, beside a tokenizer for targets, "
                "without a task and without vectors; leave it out, or leave those out and give tokenizer=bpe"
            )
        if not self.model.spec(self.vocab_size).is_encoder_decoder:
            raise ValueError(
                "source_tokenizer is for encoder–decoders, which read sources apart from targets; leave it out, or take "
                "model=transformer with objective=sequence-to-sequence"
            )
        if self.model.changes.get("tie_embeddings"):
            raise ValueError("two vocabularies share no table: leave out tie_embeddings, or source_tokenizer")
        changes = {**self.model.changes, "source_vocab_size": size, "tie_embeddings": False}
        return self.model_copy(update={"model": self.model.model_copy(update={"changes": changes})})

    def resolve(self, vocab_size: int) -> Self:
        """The recipe with nothing left to a default that another version could change: the preset's sizes spelled out,
        of a trained model the place on this machine and the learning rate; paths of data are absolute."""
        return self._with_places()._resolved(vocab_size)

    def _with_places(self) -> Self:
        given = {name: part.to_dict() for name in ("data", "vectors", "tokenizer") if (part := getattr(self, name))}
        placed = places.here(given)
        changes = {name: getattr(self, name).from_dict(placed[name]) for name in given if placed[name] != given[name]}
        return self.model_copy(update=changes)

    def _resolved(self, vocab_size: int) -> Self:
        if self.model.directory:
            path = Path(self.model.directory).expanduser()
            place = str(path.resolve()) if path.is_dir() else self.model.directory
            placed = self.model_copy(update={"model": self.model.model_copy(update={"directory": place})})
            return placed._at_tuning_rate() if self.tunes_by_default else placed
        own = sizes_of(self.model.preset)
        sizes = {**own, **({"vocab_size": vocab_size} if "vocab_size" in own else {}), **self.model.sizes}
        sizes = {name: size for name, size in sizes.items() if size is not inspect.Parameter.empty}
        return self.model_copy(update={"model": self.model.model_copy(update={"sizes": sizes})})

    @property
    def tunes_by_default(self) -> bool:
        """Whether a trained model is to be trained on, at a learning rate that nobody has given."""
        return self.model.directory is not None and "lr" not in self.training.optimizer.model_fields_set

    def _at_tuning_rate(self) -> Self:
        """With the optimizer's default rate for a trained model as wide as this one."""
        width = getattr(self.model.spec(), "d_model", None) or 768
        optimizer = self.training.optimizer.tuning(width, self.adapter is not None)
        return self.model_copy(update={"training": self.training.model_copy(update={"optimizer": optimizer})})

    def resolve_data(self, tokenizer: Encoder | None) -> Self:
        """The recipe with what the data say in it: the task's classes, and a head that has a place for each of them.

        Raises ValueError where task, head and data don't fit together.
        """
        sources = getattr(tokenizer, "sources", None)
        if self.source_tokenizer is not None and sources is not None:
            return self.with_source_vocabulary(sources.vocab_size)._resolve_data(tokenizer)
        return self._resolve_data(tokenizer)

    def _resolve_data(self, tokenizer: Encoder | None) -> Self:
        spec = self.model.spec(self.vocab_size)
        if isinstance(self.objective, SequenceToSequence) and not spec.is_encoder_decoder:
            raise ValueError(
                "the objective 'sequence-to-sequence' needs an encoder–decoder, which reads second texts as targets; for a "
                "decoder, which reads both as one text, give objective=next-token"
            )
        higher = display_of(self.training.metric).higher_is_better
        right = self.training.mode if higher is None else "max" if higher else "min"
        if right != self.training.mode:
            raise ValueError(
                f"training.mode is {self.training.mode!r}, but {self.training.metric} is the better the "
                f"{'higher' if higher else 'lower'} it is; give training.mode={right}"
            )
        if self.task is None:
            return self if self.head is None else self._headed(self.head)
        if not isinstance(spec, Transformer):
            raise ValueError(
                f"the task {self.task.kind} is for Transformers, and this model is {spec.kind}; leave it out"
            )
        self._check_stacks(self.task, spec)
        first = spec.encoder or spec.output
        task = self.task.resolve(self.data, tokenizer, first.embedding)
        task = task.with_global_tokens() if has_global_tokens(first) else task
        if (why := task.why_missing(self.training.metric)) is not None:
            raise ValueError(f"training.metric is {self.training.metric!r}, but {why}")
        made = self.model_copy(update={"task": task})
        head, n = _reading_last(self.head, spec) or spec.head, task.n_labels
        if n is not None and head is not None and "labels" in type(head).model_fields:
            said = self.head.to_dict() if self.head is not None and "labels" in self.head.model_fields_set else {}
            given = said.get("labels", n)
            if given != n:
                raise ValueError(f"head.labels is {given}, and the data have {n} labels; leave it out")
            counted = {"labels": n}
            if isinstance(head, Forecaster) and "patches" not in head.model_fields_set and first.embedding.grid:
                counted["patches"] = first.embedding.grid.patches
            return made._headed(head.replace(counted))
        return made if self.head is None or head is None else made._headed(head)

    def _check_stacks(self, task: Task, spec: Transformer) -> None:
        """Raises ValueError where the model lacks what the task reads."""
        if spec.is_encoder_decoder and isinstance(self.head, _OF_ONE_STACK):
            raise ValueError(
                f"the head {self.head.kind} is taught on an encoder or a decoder, and this model is both: take another, or "
                "write the answer out (objective=sequence-to-sequence, with data of pairs)"
            )
        second = spec.classification_head
        if getattr(task, "next_sentence", False) and (second is None or second.labels is None):
            raise ValueError(
                "next-sentence prediction needs a pooler and a classifier, which this model lacks: give it "
                "model.pooler=true model.labels=2, or learn without pairs: task.next_sentence=false"
            )

    def resolve_data_as(self, other: Self) -> Self:
        """With what another recipe was resolved to, in the task and in the head, wherever this one says nothing of it."""
        changes: dict[str, Any] = {}
        for name in ("task", "head"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and type(mine) is type(theirs):
                silent = type(mine).model_fields.keys() - mine.model_fields_set
                changes[name] = mine.replace({key: getattr(theirs, key) for key in silent})
        made = self.model_copy(update=changes)
        found = {name: other.model.changes[name] for name in FROM_DATA if name in other.model.changes}
        found = {name: value for name, value in found.items() if name not in self.model.changes}
        if self.source_tokenizer is None:
            found = {name: value for name, value in found.items() if name == "head"}
        if not found:
            return made
        model = self.model.model_copy(update={"changes": {**self.model.changes, **found}})
        made = made.model_copy(update={"model": model})
        return made.model_copy(update={"head": other.head}) if "head" in found else made

    def _headed(self, head: Head) -> Self:
        """With a head of this kind among the changes to the model."""
        changes = {**self.model.changes, "head": head.to_dict()}
        return self.model_copy(update={"model": self.model.model_copy(update={"changes": changes}), "head": head})

    def to_yaml(self) -> str:
        """What `recipe.yaml` of a run directory holds; `Recipe.load` reads it back to an equal value."""
        return yamls.dump(self.to_dict())


def _most(tokenizer: TokenizerSpec | None) -> int:
    """How large a tokenizer's vocabulary may grow; those that are as large as the texts have it are taken for small."""
    return int(getattr(tokenizer, "vocab_size", None) or 1000)


def _reading_last(head: Head | None, spec: Transformer) -> Head | None:
    """The head; a classifier of sequences on a decoder reads the last token where nothing is said, the first having seen
    nothing but itself."""
    silent = isinstance(head, SequenceClassifier) and "pool" not in head.model_fields_set
    return head.replace({"pool": "last"}) if head is not None and silent and spec.encoder is None else head


def _said(spec: Spec, tree: dict[str, Any]) -> dict[str, Any]:
    """A spec's tree without the defaults that nobody has given, which `resolve_data` may put the data's own in place of."""
    if tree.keys() - {"kind"} != type(spec).model_fields.keys():  # a form of its own, such as a model's choice has
        return tree
    made = {key: value for key, value in tree.items() if key == "kind" or key in spec.model_fields_set}
    inner = {key: value for key in made if isinstance(value := getattr(spec, key), Spec)}
    return {**made, **{key: _said(part, made[key]) for key, part in inner.items()}}


def _is_directory(name: str) -> bool:
    """Whether a name that is no preset's means a directory, here or on the Hub."""
    try:
        return "/" in name or Path(name).expanduser().is_dir()
    except (OSError, ValueError, RuntimeError):  # no name of a file: too long, a character 0, an unknown user's home
        return False


def packaged() -> dict[str, str]:
    """The text of every recipe that comes with qkv, by name."""
    folder = importlib.resources.files("qkv.recipes")
    found = sorted(item.name for item in folder.iterdir() if item.name.endswith(".yaml"))
    return {name.removesuffix(".yaml"): folder.joinpath(name).read_text(encoding="utf-8") for name in found}


def tree(name: str | Path, *, imports: bool = True) -> dict[str, Any]:
    """A recipe's YAML as data, not yet validated; the modules of `qkv --import` stand in it as if it named them."""
    found = _tree(name, imports)
    return (
        {**found, "imports": [*imports_of(found), *outside.from_command_line]} if outside.from_command_line else found
    )


def _tree(name: str | Path, imports: bool) -> dict[str, Any]:
    path = Path(name)
    if path.is_dir() and (path / RECIPE).is_file():
        path = path / RECIPE
    if path.is_file():
        found = _mapping(yamls.load(read_text(path), name=str(path)), str(path))
        if imports:
            named = places.beside({"imports": list(imports_of(found, absolute=False))}, path)["imports"]
            import_named(named, str(path.parent if path.name == RECIPE else path))
        import_installed()
        return places.beside(found, path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        what = f"{path} is a folder without a {RECIPE}" if path.is_dir() else f"there is no recipe file {path}"
        raise ValueError(what)
    known = packaged()
    if str(name) not in known:
        raise ValueError(f"there is no recipe {str(name)!r}; {nearest(str(name), known)}")
    return _mapping(yamls.load(known[str(name)], name=f"the recipe {name}"), f"the recipe {name}")


def given(whole: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A recipe's tree with `key=value` settings. What they make another kind (`data.kind=images`), or a model of another
    preset, keeps of the recipe's values those that this one has."""
    settings = list(settings)

    named = [overrides.parse(setting)[0].split(".") for setting in settings]
    made = overrides.apply(_without_other_length(whole, named), settings)
    for *path, last in named:
        before, node = _at(whole, path), _at(made, path)
        if last not in ("kind", PRESET) or not path or before is None or node is None or before.get(last) == node[last]:
            continue
        if last == PRESET:
            known = {PRESET, REPLACE, *(sizes_of(node[last]) if node[last] in families.presets() else before)}
        else:
            known = {key.rpartition(".")[2] for key in keys(made, path, Recipe)}
        said = {key for way in named if way[: len(path)] == path for key in way[len(path) :][:1]}
        for key in before.keys() - known - said:
            made = overrides.without(made, [*path, key])
    made = _for_another_task(whole, made, named)
    return _within_the_context(whole, _for_a_trained_model(whole, made, named), named)


def _for_another_task(whole: dict[str, Any], made: dict[str, Any], named: list[list[str]]) -> dict[str, Any]:
    """A recipe's tree with what goes with another task that settings put in the place of its own, where they say nothing
    of that themselves."""
    kinds = [node.get("kind") if isinstance(node := tree.get("task"), dict) else node for tree in (whole, made)]
    if None in kinds or kinds[0] == kinds[1]:
        return made
    for part, wanted in getattr(spec_at(made, ["task"], Recipe), "recipe_defaults", {}).items():
        own = _at(made, [part]) or {}
        if part == "training":
            free = {key: value for key, value in wanted.items() if [part, key] not in named}
            made = {**made, part: {**own, **free}}
        elif own.get("kind") != wanted["kind"] and not any(path[0] == part for path in named):
            made = {**made, part: wanted}
    return made


def _for_a_trained_model(whole: dict[str, Any], made: dict[str, Any], named: list[list[str]]) -> dict[str, Any]:
    """A recipe's tree without its learning rate where settings put a trained model in the place of one from nothing, for
    which that was. It stays where parts are frozen: then what learns is new."""
    optimizer = _at(made, ["training", "optimizer"])
    said = any(["training", "optimizer", "lr"][: len(path)] == path for path in named)
    if said or optimizer is None or "lr" not in optimizer or optimizer.get("freeze"):
        return made
    if _goes_on(whole.get("model")) or not _goes_on(made.get("model")):
        return made
    kept = {key: value for key, value in optimizer.items() if key not in ("lr", "adamw_lr")}
    return {**made, "training": {**made["training"], "optimizer": kept}}


def _within_the_context(whole: dict[str, Any], made: dict[str, Any], named: list[list[str]]) -> dict[str, Any]:
    """A recipe's tree with rows no longer than the context of the trained model that settings put into it, where they say
    nothing of rows themselves. What is wrong with the model is told later."""
    if _goes_on(whole.get("model")) or not _goes_on(made.get("model")):
        return made
    batching = made.get("batching") or {}
    try:
        spec = ModelChoice.model_validate(made["model"]).spec()
    except (ValueError, OSError):
        return made
    name = "max_length" if spec.is_encoder_decoder else "context"
    said = batching.get(name, Batching.model_fields[name].default)
    if ["batching", name] in named or ["batching"] in named or not isinstance(said, int):
        return made
    most = spec.max_positions
    return made if most is None or said <= most else {**made, "batching": {**batching, name: most}}


def _goes_on(model: Any) -> bool:
    """Whether what a tree says of its model is a trained one."""
    try:
        return ModelChoice.model_validate(model).directory is not None
    except ValidationError:
        return False


def _without_other_length(whole: dict[str, Any], named: list[list[str]]) -> dict[str, Any]:
    """A recipe's tree without its own length in steps where one in epochs is given, and the other way round."""
    given = [name for name in LENGTHS if ["training", name] in named]
    training = whole.get("training")
    if len(given) != 1 or not isinstance(training, dict):
        return whole
    return {**whole, "training": {key: value for key, value in training.items() if key not in {*LENGTHS} - {*given}}}


def _at(data: Any, path: list[str]) -> dict[str, Any] | None:
    """The mapping at a path, where there is one."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else None


def _mapping(data: Any, name: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{name} is not a recipe: a recipe is a mapping of keys to values")
    return data
