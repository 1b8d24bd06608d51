"""What a task takes over from the trained model that it continues: the numbering of classes, and how numbers are scaled."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...core import yamls
from ...core.spec import brief
from ...data.task import Task
from ...data.tokenizers.protocol import Encoder
from ...io.directories.layout import CONFIG, RECIPE, TOKENIZER_CONFIG, read_json, read_text
from ...io.directories.locate import is_hub, locate
from ...io.directories.preprocessor import Preprocessor, is_there
from ...io.directories.spec import spec_of
from ...nn.layers.patches import Patches
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.heads.base import Head
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.transformer import Transformer

T = TypeVar("T", bound=Task)
H = TypeVar("H", bound=Head)
_PLACEHOLDER = re.compile(r"LABEL_\d+")
_LISTED = 6


def with_scaling(task: T, directory: str) -> T:
    """The task with the scaling of inputs and scores that the model in a directory was trained with, unless it is given."""
    left_out = [name for name in type(task).from_data if name not in task.model_fields_set]
    known = _scaling(task, directory) if left_out else {}
    return task.replace({name: known[name] for name in left_out if known.get(name) is not None})


def with_length(task: T, tokenizer: Encoder | None) -> T:
    """The task with the length that the tokenizer of a trained model's directory says (`model_max_length`), where it cuts
    texts at more and the recipe does not say so."""
    said = getattr(tokenizer, "config", {}).get("model_max_length")
    if not {"longest", "over_long"} <= type(task).model_fields.keys() - task.model_fields_set or not isinstance(
        said, int
    ):
        return task
    return task.replace({"longest": max(said, 4)}) if 0 < said < getattr(task, "longest", 0) else task


def in_tree(tree: dict[str, Any], directory: str, paths: list[list[str]]) -> dict[str, Any]:
    """A recipe's tree into which settings at these paths put the trained model in a directory. Unless settings give them,
    what the recipe says of a head is left out if the model has one of its kind, and texts are not longer than the
    directory's tokenizer says. An error is left to validation."""
    return _head_in_tree(_length_in_tree(tree, directory, paths), directory, paths)


def _length_in_tree(tree: dict[str, Any], directory: str, paths: list[list[str]]) -> dict[str, Any]:
    own, path = tree.get("task"), locate(directory) / TOKENIZER_CONFIG
    if not isinstance(own, dict) or ["task"] in paths or ["task", "longest"] in paths or not path.is_file():
        return tree
    said, longest = read_json(path), own.get("longest")
    most = said.get("model_max_length") if isinstance(said, dict) else None
    if not isinstance(most, int) or not isinstance(longest, int) or not 0 < most < longest:
        return tree
    return {**tree, "task": {**own, "longest": max(most, 4)}}


def _head_in_tree(tree: dict[str, Any], directory: str, paths: list[list[str]]) -> dict[str, Any]:
    own = tree.get("head")
    if not isinstance(own, dict) or ["head"] in paths:
        return tree
    try:
        trained = getattr(spec_of(directory), "head", None)
    except (ValueError, OSError):  # left to validation
        return tree
    if trained is None or own.get("kind") != trained.kind:
        return tree
    kept = {"kind", *(path[1] for path in paths if path[0] == "head")}
    return {**tree, "head": {key: value for key, value in own.items() if key in kept}}


def with_its_settings(head: H, trained: Head | None) -> H:
    """The head of a recipe with the settings that it leaves out of the trained model's head, if that is of the same kind,
    but for the number of labels."""
    if type(trained) is not type(head):
        return head
    unset = type(head).model_fields.keys() - head.model_fields_set - {"labels"}
    return head.replace({name: getattr(trained, name) for name in unset})


def pooling_last(head: Head | None, spec: Transformer, directory: str | None) -> Head | None:
    """The head of a recipe, with the settings of a trained model's; otherwise, a sequence classifier on a decoder pools the
    last token by default, since the first sees only itself."""
    own = head if head is None or directory is None else with_its_settings(head, spec.head)
    by_default = isinstance(own, SequenceClassifier) and "pool" not in own.model_fields_set
    return own.replace({"pool": "last"}) if own is not None and by_default and spec.encoder is None else own


def with_numbering(task: T, directory: str) -> T:
    """The resolved task with its classes numbered as the output layer of the model in a directory numbers them.

    Classes that the data lack keep their outputs too. A class that only the data have takes an output of a class that they
    lack if there are as many; otherwise the output layer begins anew, and the task's numbering stays.
    """
    names = names_of(task, directory)
    found = tuple(getattr(task, task.outputs, ()))
    if not names or not found or found == names:
        return task
    return task.replace({task.outputs: _numbered(found, names)})


def names_of(task: Task, directory: str) -> tuple[str, ...]:
    """The names of a trained model's outputs in their order; () if it has none for such a task, or they are placeholders."""
    folder = locate(directory)
    spec = spec_of(directory)
    labels = getattr(getattr(spec, "head", None), "n_labels", None)
    if not task.outputs or labels is None:
        return ()
    names: Sequence[Any] = ()
    if is_hub(folder):
        named = read_json(folder / CONFIG).get("id2label") or {}
        names = [str(named[str(i)]) for i in range(labels) if str(i) in named]
    elif (before := _task_in(folder, task)) is not None:
        names = getattr(before, task.outputs, ())
    distinct = len(set(names)) == len(names) == labels
    return tuple(names) if distinct and not all(map(_PLACEHOLDER.fullmatch, names)) else ()


def notes(given: Task, resolved: Task, directory: str) -> Iterator[str]:
    """What to say of the numbering of classes, and of the scaling, that a task takes over or changes."""
    names = names_of(resolved, directory)
    found = tuple(getattr(resolved, resolved.outputs, ()))
    if names and found:
        yield from _on_classes(names, found, directory, f"task.{resolved.outputs}")
    known = _scaling(resolved, directory)
    kept = [n for n in type(resolved).from_data if n not in given.model_fields_set and known.get(n) is not None]
    if kept:
        values = ", ".join(f"{name}={_shown(getattr(resolved, name))}" for name in kept)
        yield f"Numbers are scaled as {directory} was trained with them: {values} (task.{kept[0]} changes it)."


def _on_classes(names: Sequence[str], found: Sequence[str], directory: str, key: str) -> Iterator[str]:
    if len(names) != len(found):
        yield (
            f"{directory} tells {len(names)} classes apart ({_listed(names)}), and the data "
            f"{len(found)}: its output layer begins anew."
        )
        return
    moved = [name for name, other in zip(found, names, strict=True) if name != other]
    if not moved:
        yield f"The classes are numbered as in {directory}: {_listed(names)} ({key} names others)."
    elif set(moved) & set(names):
        yield (
            f"Warning: {key} numbers the classes otherwise than {directory} does ({_listed(names)}), so its output layer "
            f"begins with the wrong ones; leave {key} out."
        )
    else:
        pairs = ", ".join(
            f"{brief(new)} that of {brief(old)}" for new, old in zip(found, names, strict=True) if new != old
        )
        yield (
            f"Warning: {directory} does not know all classes of the data; each new class takes the output of a class that "
            f"the data lack: {pairs}."
        )


def _numbered(found: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    new = [name for name in found if name not in names]
    if not new:
        return tuple(names)
    if len(found) != len(names):
        return tuple(found)
    return tuple(name if name in found else new.pop(0) for name in names)


def _scaling(task: Task, directory: str) -> Mapping[str, Any]:
    """The values of the task's `from_data` that a trained model was trained with, as far as its directory tells."""
    folder = locate(directory)
    if not type(task).from_data or not folder.is_dir():
        return {}
    before, spec = _task_in(folder, task), spec_of(directory)
    if before is not None:
        return {name: getattr(before, name) for name in type(task).from_data}
    spec = spec.image if isinstance(spec, DualEncoder) else spec
    if not isinstance(spec, Transformer) or not is_hub(folder):
        return {}
    known: dict[str, Any] = {}
    if isinstance(spec.output.embedding, Patches) and is_there(folder):
        try:
            known |= dict(zip(("mean", "std"), Preprocessor.of(folder, spec).statistics, strict=True))
        except ValueError as error:
            warnings.warn(f"{error}; pictures are scaled by mean and deviation of the training pictures", stacklevel=2)
    if getattr(spec.head, "n_labels", None) == 1:  # the scores of a regression, as they are
        known |= {"center": 0.0, "spread": 1.0}
    return known


def _task_in(folder: Path, task: Task) -> Task | None:
    """The task that a run in a directory was trained on, if it is of the same kind."""
    if not (folder / RECIPE).is_file():
        return None
    try:
        data = yamls.load(read_text(folder / RECIPE), str(folder / RECIPE))
        before = Task.from_dict(data["task"]) if isinstance(data, dict) and data.get("task") else None
    except ValueError:  # of parts that are not imported: loading the model says so
        return None
    return before if type(before) is type(task) else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(brief, names[:_LISTED])) + (", …" if len(names) > _LISTED else "")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
