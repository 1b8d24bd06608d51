"""The task `retrieve`: images and the texts that belong to them, found by each other; and its prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, field_validator

from ....core.batch import Batch
from ....core.metrics.base import Metric
from ....core.metrics.baselines import Baseline
from ....core.spec import brief
from ....data.batching.numpy_batch import Array, NumpyBatch, PaddedLayout
from ....data.classes import class_name
from ....data.media.images import check_ratio, fitted
from ....data.source import Example, Skipped, Source
from ....data.task import Item, RandomContext
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ....nn.models.base import ModelSpec
from ....nn.models.dual_encoder import DualEncoder
from ..framing import framed
from ..pictures import AugmentedTask
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import split_tabs
from .baseline import LEARNED, ridge_retrieval
from .metric import RetrievalMetric
from .templates import check_template
from .towers import Towers, candidates

_LOOKED_AT = 64  # training examples that must not all have one text


@dataclass(frozen=True, eq=False)
class ImageText(Item):
    """An image and its text; `lost` are the tokens of the text that were cut off."""

    lost: int = 0

    @property
    def cut(self) -> bool:
        return self.lost > 0


class Retrieve(AugmentedTask, kind="retrieve"):
    """Images, each with a text: an "answer" (a caption), a "text", or a "label" that `templates` make a text of. The model
    is a `dual-encoder`, the objective `clip` or `siglip`.

    templates: texts with {} for the class of an image, such as "a photo of a {}". Training draws one of them for each image,
               evaluation takes the first.
    longest:   the most tokens of a text, special tokens included; longer texts are cut at their ends, which is counted. By
               default the most that the model reads.
    fills:     whether texts are filled with padding up to `longest`, as the model says.
    """

    needs_tokenizer: ClassVar[bool] = True
    pairs_towers: ClassVar[bool] = True
    recipe_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "objective": {"kind": "clip"},
        "training": {"metric": "recall@1", "mode": "max"},
    }
    fields = ("image",)

    templates: tuple[str, ...] = ()
    longest: int | None = Field(default=None, ge=3)
    fills: bool | None = None

    @field_validator("templates")
    @classmethod
    def _have_a_place(cls, templates: tuple[str, ...]) -> tuple[str, ...]:
        for one in templates:
            check_template(one, "task.templates")
        return templates

    def of_model(self, spec: ModelSpec) -> Self:
        assert isinstance(spec, DualEncoder)
        most = spec.max_positions
        if self.longest is not None and most is not None and self.longest > most:
            raise ValueError(f"task.longest is {self.longest}, and the model reads texts of {most} tokens at most")
        longest = self.longest or most or 64
        return self.replace({"longest": most if spec.fills else longest, "fills": spec.fills})

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        task = super().resolve(source, tokenizer, inputs)
        examples = list(islice(source.examples("train", shuffle=True), _LOOKED_AT))
        texts = [task.text_of(one) for one in examples]
        if len(examples) > 1 and len(set(texts)) == 1:
            raise ValueError(
                f"all of {len(examples)} training examples have the text {brief(texts[0])}, so there is nothing to tell "
                "apart; give each picture a text of its own"
            )
        return task

    def texts(self, example: Example) -> Iterator[str]:
        if self.templates and "label" in example:
            yield from (one.format(class_name(example["label"])) for one in self.templates)
        else:
            yield self.text_of(example)

    def text_of(self, example: Example, template: int = 0) -> str:
        """The text of an image. Raises ValueError if it has none."""
        for name in ("answer", "text"):
            if name in example:
                return str(example[name])
        label = class_name(example.get("label"))
        if label is not None and self.templates:
            return self.templates[template].format(label)
        where = example.get("where", "an example")
        if label is not None:
            raise ValueError(
                f"{where} has a label and no text; set task.templates='[\"a photo of a {{}}\"]' to write one"
            )
        raise ValueError(f"{where} has no text beside its picture; the task retrieve reads pairs of both")

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        assert tokenizer is not None
        stack = self.stacked(examples, randomness)
        count = len(self.templates)
        chosen = randomness.generator.integers(count, size=len(examples)) if randomness.training and count > 1 else None
        texts = [self.text_of(examples[i], 0 if chosen is None else int(chosen[i])) for i in stack.kept]
        rows = self.rows(texts, tokenizer)
        items: list[Item | Skipped] = []
        for i, text, (ids, lost), picture in zip(stack.kept, texts, rows, stack.pictures, strict=True):
            if not text.strip():
                items.append(Skipped("without a text"))
                continue
            one = examples[i]
            image = str(one["image"]) if isinstance(one["image"], Path) else ""
            about = {} if randomness.training else {"where": one.get("where", ""), "text": text, "image": image}
            arrays: dict[str, Array] = {"ids": ids, "pixels": picture}
            items.append(ImageText(arrays, tokens=len(ids) + self.tokens, example=about, lost=lost))
        return [one if isinstance(one, Skipped) else [one] for one in stack.with_skipped(items)]

    def rows(self, texts: Sequence[str], tokenizer: Encoder) -> list[tuple[Array, int]]:
        """The tokens of texts, with special tokens and filled if the model wants it, and how many each text lost."""
        framings = [framed(tokenizer, ids, room=self.longest) for ids in tokenizer.encode_batch(list(texts))]
        if not self.fills:
            return [(one.ids, one.cut) for one in framings]
        pad, width = tokenizer.pad_id, self.longest or 0
        if pad is None:
            raise ValueError(
                "this model fills texts with padding, and the tokenizer has no padding token; give it tokenizer.pad"
            )
        return [(np.pad(one.ids, (0, width - len(one.ids)), constant_values=pad), one.cut) for one in framings]

    def collate(self, items: Sequence[Item], pad: int) -> NumpyBatch:
        """Texts are padded on the right, and pictures stacked. Each pair counts once."""
        ids = [item.arrays["ids"] for item in items]
        spans = PaddedLayout([len(one) for one in ids])
        width = max(spans.lengths)
        rows = np.stack([np.pad(one, (0, width - len(one)), constant_values=pad) for one in ids])
        pixels = np.stack([item.arrays["pixels"] for item in items])
        return NumpyBatch(
            {"ids": rows, "pixels": pixels},
            {"ids": spans},
            counts={"loss": len(items)},
            tokens=sum(item.lengths[0] for item in items),
            slots=len(items) * (width + self.tokens),
            texts=tuple(item.example for item in items),
        )

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        shown = super().preview(batch, row, tokenizer)
        return sorted(shown, key=lambda line: line[0] == "ids")  # the picture with its lines, then the text

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return RetrievalMetric(self.mean, self.std)

    def baselines(self, source: Source, examples: Iterable[Example]) -> list[Baseline]:
        """Words predicted from small pictures by ridge regression, and chance."""
        training = list(islice(source.examples("train", seed=0), LEARNED))
        tested = list(examples)
        small = [[self.pixels(one) for one in side] for side in (training, tested)]
        kept = [
            [(pixels, self.text_of(one)) for pixels, one in zip(*both, strict=True) if not isinstance(pixels, Skipped)]
            for both in zip(small, (training, tested), strict=True)
        ]
        return ridge_retrieval(*kept) if all(kept) else []

    def picture(self, path: str) -> Array:
        """The model's input for a picture file. Raises ValueError if it holds none."""
        pixels = self.read(path)
        check_ratio(pixels.shape[1:], self.size, str(path))
        return self.normalize(fitted(pixels, self.size, self.fit))

    def towers(self, trained: TrainedModel) -> Towers:
        """The trained model, and how it reads pictures and texts."""
        model: Any = trained.model
        return Towers(model, self.picture, lambda texts: self.rows(texts, trained.words), self.longest)


@Retrieve.predicts
def predict(
    task: Retrieve,
    trained: TrainedModel,
    lines: Sequence[str],
    *,
    among: str | Path | Sequence[str] | None = None,
    top: int = 5,
    **_: Any,
) -> Iterator[Prediction]:
    """The cosine of each line FILE<tab>TEXT; or with candidates, the `top` of them that are nearest to each text or picture.

    among: a folder of pictures, a file of lines, or a list of texts and picture files.
    """
    yield from similar(task.towers(trained), lines, among, top)


def similar(
    towers: Towers, lines: Sequence[str], among: str | Path | Sequence[str] | None, top: int
) -> Iterator[Prediction]:
    """See `predict`. Raises ValueError for a `top` below 1, and for lines that are no pairs if there are no candidates."""
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise ValueError(f"top is the number of candidates to show, at least 1, not {brief(top)}")
    if among is None:
        for i, line in enumerate(lines, 1):
            pair = split_tabs(line, ("FILE", "TEXT"), f"input {i}")
            u, v = towers.vectors(pair)
            yield Prediction.of_number(line, float(u @ v))
        return
    for line, found in zip(lines, towers.nearest(lines, candidates(among), top), strict=True):
        shown = "  ".join(f"{one} {cosine:.3f}" for one, cosine in found)
        listed = [{"candidate": one, "cosine": cosine} for one, cosine in found]
        yield Prediction(line, found, f"{shown}\t{line}", {"nearest": listed})
