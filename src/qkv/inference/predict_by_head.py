"""Predictions by the head of a model that has no recipe, such as one of the Hub, as the Hub's library makes them.

A head from outside joins by `@predicts_head(MyHead)` over a function of a run, its inputs and options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ..core.batch import Batch
from ..data.source import Example
from ..directories.preprocessor import Preprocessor
from ..metrics.base import model_outputs
from ..metrics.entities import scheme_of
from ..models.heads.sequence import SequenceClassifier
from ..models.heads.text import Head, Span, TokenClassifier
from ..models.heads.vision import Detector, ImageClassifier
from ..models.transformer import Transformer
from ..tasks.classes import predictions, split_pairs
from ..tasks.detection.metric import SHOWN, detections
from ..tasks.detection.predict import check_threshold, detection_prediction
from ..tasks.pieces import visible
from ..tasks.prediction import Prediction, TrainedModel
from ..tasks.question_answering.task import Answer
from ..tasks.tagging.task import Tag
from ..tasks.text_regression.predict import number_prediction
from .classify import chooses_global, classify, labels_of, numbers
from .classify_files import classify_files
from .loaded import LoadedModel

_LONGEST = 384  # tokens of a row, where the model has room for them

PredictByHead = Callable[..., Iterable[Prediction]]


class HeadPrediction(NamedTuple):
    """How models with a head predict, whether they read texts, and the fewest labels for which they do."""

    predict: PredictByHead
    reads_text: bool
    labels: int


_BY_HEAD: dict[type[Head], HeadPrediction] = {}


def predicts_head(
    head: type[Head], reads_text: bool = False, labels: int = 1
) -> Callable[[PredictByHead], PredictByHead]:
    """A decorator for the prediction of models with a head, `function(run, inputs, **options)`."""

    def register(function: PredictByHead) -> PredictByHead:
        _BY_HEAD[head] = HeadPrediction(function, reads_text, labels)
        return function

    return register


def prediction_of_head(head: Head | None) -> HeadPrediction | None:
    """How models with a head predict; None where they don't."""
    found = next((_BY_HEAD[base] for base in type(head).__mro__ if base in _BY_HEAD), None)
    return found if found is not None and (getattr(head, "labels", 1) or 0) >= found.labels else None


@predicts_head(TokenClassifier, reads_text=True, labels=2)
def _tags(run: LoadedModel, texts: Sequence[str], **_: Any) -> Iterable[Prediction]:
    """A tag for each word. An I-X that nothing has begun is an entity too, as `transformers` has it."""
    tags = labels_of(run, _labels(run))
    scheme = scheme_of(tags)
    task = Tag(tags=tags, scheme="conll" if scheme == "iob2" else scheme, symbols=False, longest=_longest(run))
    return task.predict(_as_filed(run), texts, in_words=lambda text: _in_words(run, text))


@predicts_head(Span, reads_text=True)
def _answers(run: LoadedModel, lines: Sequence[str], **_: Any) -> Iterable[Prediction]:
    longest = _longest(run)
    task = Answer(longest=longest, overlap=min(128, (longest - 1) // 2), unanswerable=False)
    task = task.with_global_tokens() if chooses_global(run) else task
    return task.predict(run.for_task, lines)


@predicts_head(SequenceClassifier, reads_text=True)
def _classes(run: LoadedModel, lines: Sequence[str], **_: Any) -> Iterable[Prediction]:
    """The class of each text, or of each pair of texts with a tab between; its number where the head has one label."""
    sides = split_pairs(lines)
    if _labels(run) == 1:
        return [number_prediction(line, one) for line, one in zip(lines, numbers(run, *sides), strict=True)]
    return predictions(lines, classify(run, *sides))


@predicts_head(ImageClassifier)
def _image_classes(run: LoadedModel, paths: Sequence[str], **_: Any) -> Iterable[Prediction]:
    return predictions(paths, classify_files(run, paths))


@predicts_head(Detector)
def _objects(run: LoadedModel, paths: Sequence[str], *, threshold: float = SHOWN, **_: Any) -> Iterator[Prediction]:
    """As the task `detect`: classes are those of `id2label`, pictures are brought to the model's size as its
    `preprocessor_config.json` says, each by itself."""
    check_threshold(threshold)
    spec = run.model.spec
    assert isinstance(spec, Transformer) and isinstance(spec.head, Detector) and run.path is not None
    processor, classes = Preprocessor.of(run.path, spec), labels_of(run, spec.head.labels)
    for path in paths:
        pixels = processor.read(path)
        ids = torch.from_numpy(processor.numbers(pixels))[None]
        (found,) = detections(model_outputs(run.model, Batch({"ids": ids}).to(run.model.device)))
        objects = found.surer(threshold).surest_first()
        yield detection_prediction(classes, processor.read, path, pixels.shape[1:], objects)


def _labels(run: LoadedModel) -> int:
    return int(getattr(run.model.spec.head, "labels", 1))


def _longest(run: LoadedModel) -> int:
    return min(run.model.max_positions or _LONGEST, _LONGEST)


def _as_filed(run: LoadedModel) -> TrainedModel:
    """The model with a tokenizer that puts around a text what its file says and nothing else, which for most decoders is
    nothing."""
    return TrainedModel(run.model, run.text_model.tokenizer.without("bos", "eos", "cls", "sep"))


def _in_words(run: LoadedModel, text: str) -> Example:
    """A text in the words that its tokenizer tells apart, a full stop from the word before it: what the model was trained on
    had these apart, too."""
    made = run.text_model.tokenizer.raw.encode(text, add_special_tokens=False)
    shown, spans, before = visible(text), list[tuple[int, int]](), None
    for number, (start, end) in zip(made.word_ids, made.offsets, strict=True):
        start = int(shown[start])
        if start >= end:
            continue  # nothing but white space
        if spans and number == before and not text[spans[-1][1] : start].isspace():
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
        before = number
    return {"text": text, "words": [text[start:end] for start, end in spans]}
