"""The base class of tasks: how an example becomes a model's inputs and labels, and how outputs become predictions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..core.batch import IGNORE, Batch
from ..core.metrics.base import Metric
from ..core.metrics.baselines import Baseline
from ..core.spec import Spec
from ..nn.layers.embedding import Input
from ..nn.models.base import ModelSpec
from . import ascii_art
from .batching.encoded import Encoded
from .batching.numpy_batch import LAYOUTS, Array, NumpyBatch, PaddedLayout, count_labels
from .batching.rows import Rows
from .batching.settings import Batching
from .classes import check_classes
from .source import SPLITS, TEXTS, Counts, Example, Skipped, Source
from .tokenizers.protocol import Encoder, TextDecoder

Labels = Array | np.generic | None
"""What the model should output for one item; None for no labels."""

Predict = TypeVar("Predict", bound=Callable[..., Iterable[Any]])

SEQUENCES = (*LAYOUTS, "token_types")  # inputs that are padded where they have one axis


class RandomContext(NamedTuple):
    """A random generator, and whether the examples are for training and so may be augmented or corrupted at random.

    `generator` is seeded by (seed, epoch, pool) in training and by the pool alone in evaluation, which draws the same
    each time.
    """

    generator: np.random.Generator
    training: bool


@dataclass(frozen=True, eq=False)
class Item:
    """One example in arrays.

    arrays:  the model's inputs, by the names of its arguments, without the batch axis.
    labels:  what the model should output.
    targets: what else the objective needs, by name.
    tokens:  how many the model sees of it: by default the lengths of `ids` and `target`.
    example: the example behind it.
    media:   pictures, sounds … in the places of placeholder tokens, by name: (n, …) for n of one size.
    """

    arrays: dict[str, Array]
    labels: Labels = None
    targets: dict[str, Any] = field(default_factory=dict)
    tokens: int | None = None
    example: Example = field(default_factory=dict)
    media: dict[str, Array] = field(default_factory=dict)

    @property
    def cut(self) -> bool:
        """Whether it was truncated to fit."""
        return False

    @property
    def lengths(self) -> tuple[int, int]:
        """The number of tokens in the decoder (or only) input, and in the encoder input beside it."""
        ids, target = self.arrays["ids"], self.arrays.get("target")
        own = len(ids) if self.tokens is None else self.tokens
        return (own, 0) if target is None else (len(target), own)


_NAMED = 5  # classes listed by name in a note


class Task(Spec, role="task"):
    """How examples become batches, and how outputs are evaluated. A new one is a subclass with a `kind`:

    class Length(Task, kind="length"):
        def inputs(self, example, tokenizer, randomness):
            return Item({"ids": np.array(tokenizer.encode_batch([example["text"]])[0])})

        def labels(self, example, inputs):
            return np.float32(len(example["text"]))

    Training and evaluation read `items`, inputs with their labels; prediction reads inputs alone. A task whose corruption
    of an example gives both, such as masked language modeling, overrides `item` or `items` instead.

    pool:  how many examples are read ahead and sorted by length, if the recipe does not set it.
    needs_tokenizer: whether it reads text.
    recipe_defaults: the "head", "objective" and "training" that replace a recipe's own when it switches to this task.
    roles: the control tokens that its tokenizer needs, such as "mask"; a newly trained tokenizer gets them.
    corrupts: whether training and evaluation read inputs that are corrupted, and prediction reads them as they are.
    tells_classes: whether each prediction is a class, so `qkv classify` works with its runs.
    outputs: the field that names the head's outputs in their order, if they are found by their names.
    from_data: fields with the scaling of numbers, which `resolve` takes from the training data if nothing gives them.
    decoding: fields that change outputs of a trained model and nothing else; `qkv eval --task` takes them.
    predicts_without_input: whether `predict` works without an input.
    pairs_towers: whether it is for dual encoders, which read images and texts.
    """

    pool: ClassVar[int] = 1024
    needs_tokenizer: ClassVar[bool] = True
    recipe_defaults: ClassVar[dict[str, dict[str, Any]]] = {}
    roles: ClassVar[tuple[str, ...]] = ()
    corrupts: ClassVar[bool] = False
    tells_classes: ClassVar[bool] = False
    outputs: ClassVar[str] = ""
    from_data: ClassVar[tuple[str, ...]] = ()
    decoding: ClassVar[tuple[str, ...]] = ()
    predicts_without_input: ClassVar[bool] = False
    pairs_towers: ClassVar[bool] = False
    fields: ClassVar[tuple[str, ...]] = ()  # that every example must have
    _predict: ClassVar[Callable[..., Iterable[Any]] | None] = None

    @property
    def libraries(self) -> tuple[str, ...]:
        """The optional libraries that it needs, by the names of their modules."""
        return ()

    @property
    def special(self) -> tuple[str, ...]:
        """Tokens that its tokenizer needs, such as the sentinels of span corruption."""
        return ()

    def of_model(self, spec: ModelSpec) -> Self:
        """The task for a model, before `resolve`: what depends on more of the model than its input layer."""
        return self

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        """Fill in what depends on data and model: the classes in the training data, the size of the images that the model
        reads (`inputs` is the input layer of its first stack). The result is saved in the recipe of the run.

        Raises ValueError if data, model and task don't fit together.
        """
        return self

    def check_fields(self, example: Example, source: Source | None = None) -> None:
        """Raise ValueError if an example, of `source` if it is given, lacks a field that the task reads."""
        missing = next((name for name in self.fields if name not in example), None)
        if missing is not None:
            there = ", ".join(name for name in example if name not in ("where", "piece"))
            wanted = " and ".join(filter(None, (", ".join(self.fields[:-1]), self.fields[-1])))
            named = source is None or missing in type(source).model_fields
            advice = f"name the column that holds it, as data.{missing}=…, or choose" if named else "choose"
            raise ValueError(
                f"the task {self.kind} reads {wanted}, and the data have {there or 'nothing'} but no {missing}; {advice} "
                "another source"
            )

    def check_labels(self, source: Source) -> list[str]:
        """Check, before training, the labels of the validation and test splits: by default that the training data have all
        their classes. Returns sentences for the user on labels that are allowed. Raises ValueError that names the classes
        that the training data lack, unless the task skips such examples."""
        if getattr(self, "classes", ()) and getattr(self, "on_error", "raise") == "raise":
            for split in SPLITS[1:]:
                check_classes(source, split, getattr(self, "classes", ()))
        return []

    def check_inputs(self, source: Source, tokenizer: Encoder | None) -> list[str]:
        """Check, before training, what else can be wrong with the training data. Returns sentences for the user on what is
        changed or skipped."""
        return []

    def model_changes(self, tokenizer: Encoder | None) -> dict[str, Any]:
        """Changes to the model's spec that follow from the tokenizer, such as the placeholder token of pictures."""
        return {}

    def with_global_tokens(self) -> Self:
        """The task for a model with global tokens, with its default choice of which tokens of a row are global. By
        default none, or those that the task has anyway."""
        return self

    @property
    def n_labels(self) -> int | None:
        """How many classes or numbers the model's head needs; None to keep the number in its spec."""
        return None

    def notes(self, example: Example) -> tuple[str, ...]:
        """Sentences for the user on how examples are read; `example` is the first one."""
        classes: tuple[str, ...] = getattr(self, "classes", ())
        if not classes:
            return ()
        named = ", ".join(map(repr, classes[:_NAMED])) + (" …" if len(classes) > _NAMED else "")
        return (f"{len(classes):,} classes: {named}",)

    def measured(self, metric: str, source: Source) -> str:
        """The metric that chooses the best weights: `metric`, or another if it is a default that these data can't give."""
        return metric

    def why_missing(self, metric: str) -> str | None:
        """Why an evaluation lacks a metric that it has on other data; None if there is no known reason."""
        return None

    def texts(self, example: Example) -> Iterator[str]:
        """The texts of an example that a tokenizer is trained on."""
        yield from (example[name] for name in TEXTS if name in example)

    def inputs(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item | Skipped:
        """The model inputs of an example, without labels; or why it is skipped, which is counted."""
        raise NotImplementedError(f"{type(self).__name__} does not define the inputs of an example")

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        """The inputs of several examples, for a task that is faster with a batch, or that splits an example into items."""
        items = (self.inputs(example, tokenizer, randomness) for example in examples)
        return [item if isinstance(item, Skipped) else [item] for item in items]

    def labels(self, example: Example, inputs: Item) -> Labels | Skipped:
        """The labels for an example's inputs, None for none; or why it is skipped. Raises ValueError if they are invalid."""
        return None

    def item(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item | Skipped:
        """The first item of an example: its inputs with their labels; or why it is skipped."""
        return self.items_of_each([example], tokenizer, randomness)[0][0]

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        """The items of all examples of a pool: inputs with labels."""
        if type(self).item is not Task.item:
            return [self.item(example, tokenizer, randomness) for example in examples]
        return [item for items in self.items_of_each(examples, tokenizer, randomness) for item in items]

    def items_of_each(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[list[Item | Skipped]]:
        """Return a list of items for each example: inputs with labels, or the reason why the example is skipped."""
        every: list[list[Item | Skipped]] = []
        for example, inputs in zip(examples, self.inputs_of(examples, tokenizer, randomness), strict=True):
            if isinstance(inputs, Skipped):
                every.append([inputs])
                continue
            labelled = ((one, self.labels(example, one)) for one in inputs)
            every.append([y if isinstance(y, Skipped) else replace(one, labels=y) for one, y in labelled])
        return every

    def repeats(self, tokenizer: Encoder | None) -> bool:
        """Whether a training example has the same items in every epoch, so they can be cached.

        A class that overrides `inputs`, `inputs_of`, `item` or `items` must override this method too, or its items are
        not cached.
        """
        return False

    @classmethod
    def predicts(cls, function: Predict) -> Predict:
        """A decorator for the task's prediction, `function(task, trained, inputs, **options)`: `trained` is a
        run, see `tasks.prediction.TrainedModel`, inputs are texts or paths, and options are the options of `qkv predict`.
        It returns a `tasks.prediction.Prediction` for each input."""
        cls._predict = staticmethod(function)
        return function

    @property
    def can_predict(self) -> bool:
        """Whether the task predicts on new inputs."""
        return self._predict is not None

    @property
    def predict_options(self) -> Collection[str]:
        """Names of the options of `predict`; none if the task does not predict."""
        return () if self._predict is None else tuple(inspect.signature(self._predict).parameters)[3:]

    def predict(self, trained: Any, inputs: Sequence[str], **options: Any) -> Iterable[Any]:
        """A `Prediction` for each new input, see `predicts`. Raises ValueError if an input can't be read."""
        if self._predict is None:
            raise ValueError(f"the task {self.kind!r} does not predict on new inputs")
        return self._predict(self, trained, inputs, **options)

    def collate(self, items: Sequence[Item], pad: int) -> NumpyBatch:
        """A batch of items: sequences padded on the right to the longest, labels of one axis with −100, all else stacked."""
        first = items[0]
        arrays = {name: joined([item.arrays[name] for item in items], name, pad) for name in first.arrays}
        labels = None if first.labels is None else joined([np.asarray(i.labels) for i in items], "labels", IGNORE)
        placed = {
            n: PaddedLayout([len(i.arrays[n]) for i in items]) for n in LAYOUTS if n in arrays and arrays[n].ndim == 2
        }
        targets = {name: np.stack([np.asarray(item.targets[name]) for item in items]) for name in first.targets}
        lengths = [item.lengths for item in items]
        return NumpyBatch(
            arrays,
            dict(placed),
            labels,
            targets,
            counts=self.counts(labels, targets),
            tokens=sum(map(sum, lengths)),
            slots=len(items) * sum(map(max, zip(*lengths, strict=True))),
            texts=tuple(item.example for item in items),
            media=_media(items),
        )

    def counts(self, labels: Array | None, targets: dict[str, Any]) -> dict[str, int]:
        """The number of labels in each term of the loss: "loss" for the head, others by the name of their target."""
        own = {} if labels is None else {"loss": count_labels(labels)}
        return own | {name: count_labels(target) for name, target in targets.items()}

    def baselines(self, source: Source, examples: Iterable[Example]) -> list[Baseline]:
        """The metrics of simple methods on evaluated examples, with which the model's are compared: the most frequent class,
        naive Bayes. They may learn from the training split of the source."""
        return []

    def metric(self, tokenizer: TextDecoder | None) -> Metric:
        """The metric that collects and evaluates the model's outputs."""
        return Metric()

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """One row of a batch as named lines of text, for `qkv show RECIPE --data`; images and series are drawn."""
        lines = []
        for name, value in (*batch.inputs.items(), ("label", batch.labels), *batch.targets.items()):
            if name not in (*LAYOUTS.values(), "media") and value is not None:
                at = LAYOUTS.get(name) if name != "label" else None
                real = batch.inputs[at].lengths if at and at in batch.inputs else None
                own = value[row][: real[row]] if real else value[row]
                alone = name == "label" and not own.ndim
                lines.append((name, self.label_text(own.item()) if alone else format_value(own, tokenizer, name)))
                lines += [("", line) for line in sketch_lines(own)]
        return lines

    def label_text(self, label: float) -> str:
        """A label as text."""
        classes: Sequence[str] = getattr(self, "classes", ())
        return classes[int(label)] if classes else f"{label:.4g}"


class TextTask(Task):
    """A task on running text, such as masked language modeling: turns the token ids of a pool's documents into rows.

    Documents are tokenized once and cached (`Batching.cache`); `rows` transforms the ids, anew in each epoch.
    """

    def rows(
        self, encoded: Encoded, tokenizer: Encoder, batching: Batching, randomness: RandomContext, counts: Counts
    ) -> Rows:
        """The rows of a pool's documents, see `data.batching.rows`."""
        raise NotImplementedError(f"{type(self).__name__} does not define the rows of running text")


def _media(items: Sequence[Item]) -> dict[str, Array | list[Array]]:
    """The media of all items, by name."""
    media: dict[str, Array | list[Array]] = {}
    for name in dict.fromkeys(name for item in items for name in item.media):
        parts = [item.media[name] for item in items if name in item.media]
        alike = len({part.shape[1:] for part in parts}) == 1
        media[name] = np.concatenate(parts) if alike else [one for part in parts for one in part]
    return media


def joined(parts: list[Array], name: str, pad: int) -> Array:
    """(B, …): sequences padded on the right, other arrays stacked. Raises ValueError if their shapes differ."""
    if parts[0].ndim == 1 and name in (*SEQUENCES, "labels") and np.issubdtype(parts[0].dtype, np.integer):
        padded = np.full((len(parts), max(map(len, parts))), pad if name != "token_types" else 0, np.int64)
        for row, part in zip(padded, parts, strict=True):
            row[: len(part)] = part
        return padded
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"{name} of a batch must have one shape, not {' and '.join(map(str, sorted(shapes)))}")
    stacked: NDArray[Any] = np.stack(parts)
    return stacked.astype(np.int64) if np.issubdtype(stacked.dtype, np.integer) else stacked


def format_value(value: Tensor, tokenizer: TextDecoder | None, name: str) -> str:
    """An input or a label as text: tokens with their ids, a number as it is, larger arrays by shape and range."""
    if getattr(value, "ndim", 0) == 0:
        return str(value.item() if hasattr(value, "item") else value)
    if value.ndim == 1 and not value.is_floating_point():
        words = tokenizer is not None and name in (*LAYOUTS, "label")
        return " ".join(_token(i, tokenizer if words else None) for i in value.tolist())
    numbers = value.float()
    sizes = " × ".join(map(str, value.shape))
    if not value.numel():
        return f"{sizes} numbers"
    return f"{sizes} numbers from {numbers.min():.3g} to {numbers.max():.3g}, mean {numbers.mean():.3g}"


def sketch_lines(value: Tensor) -> list[str]:
    """Draw an image (C, H, W) or a series, (1, 1, T) or (T,), of floats as lines of characters; nothing for other values."""
    if not value.is_floating_point() or value.ndim not in (1, 3) or not value.numel():
        return []
    flat = value.ndim == 1 or value.shape[:2] == (1, 1)
    return [ascii_art.series(value.flatten())] if flat else ascii_art.picture(value)


def _token(number: int, tokenizer: TextDecoder | None) -> str:
    if number == IGNORE:
        return "–"
    return str(number) if tokenizer is None else f"{tokenizer.tokens([number])[0]}·{number}"
