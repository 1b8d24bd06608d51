"""Predict by the head of a model without a recipe, such as a Hub model, as pipelines of `transformers` do.

Decorate a function of a run, its inputs and options with `@predicts_head(MyHead)` to add a head from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...core.batch import Batch
from ...core.metrics.base import model_outputs
from ...core.metrics.entities import scheme_of
from ...data.source import Example
from ...io.directories.layout import read_json
from ...io.directories.preprocessor import FILE, Preprocessor
from ...nn.layers.waveform import Waveform
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.heads.base import Head
from ...nn.models.heads.ctc import CTC
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.text import Span, TokenClassifier
from ...nn.models.heads.vision import Detector, ImageClassifier
from ...nn.models.transformer import Transformer
from ..tasks.classes import predictions, split_pairs
from ..tasks.detection.metric import SHOWN, detections
from ..tasks.detection.predict import check_threshold, detection_prediction
from ..tasks.pieces import visible
from ..tasks.prediction import Prediction
from ..tasks.question_answering.task import Answer
from ..tasks.speech_recognition.ctc import RecognizeCTC
from ..tasks.tagging.task import Tag
from .classify import chooses_global, classify, labels_of, numbers
from .classify_files import classify_files
from .loaded import LoadedModel
from .towers import predict_by_towers

_LONGEST = 384  # tokens in a row, or fewer if the model's context is shorter

PredictByHead = Callable[..., Iterable[Prediction]]


class HeadPrediction(NamedTuple):
    """How models with a head predict, whether they read texts, and the fewest labels that they need."""

    predict: PredictByHead
    reads_text: bool
    labels: int


_BY_HEAD: dict[type[Head] | type[DualEncoder], HeadPrediction] = {}


def predicts_head(
    head: type[Head] | type[DualEncoder], reads_text: bool = False, labels: int = 1
) -> Callable[[PredictByHead], PredictByHead]:
    """A decorator for the prediction of models with a head, `function(run, inputs, **options)`."""

    def register(function: PredictByHead) -> PredictByHead:
        _BY_HEAD[head] = HeadPrediction(function, reads_text, labels)
        return function

    return register


def prediction_of_head(head: Head | DualEncoder | None) -> HeadPrediction | None:
    """Return how models with this head predict, or None if they don't."""
    prediction = next((_BY_HEAD[base] for base in type(head).__mro__ if base in _BY_HEAD), None)
    labels = getattr(head, "labels", 1) or 0
    return prediction if prediction is not None and labels >= prediction.labels else None


@predicts_head(TokenClassifier, reads_text=True, labels=2)
def _tags(run: LoadedModel, texts: Sequence[str], **_: Any) -> Iterable[Prediction]:
    """Tag each word. An I-X without a B-X before it begins an entity too, as in `transformers`."""
    tags = labels_of(run, _labels(run))
    scheme = scheme_of(tags)
    task = Tag(tags=tags, scheme="conll" if scheme == "iob2" else scheme, symbols=False, longest=_longest(run))
    return task.predict(_without_roles(run), texts, in_words=lambda text: _in_words(run, text))


@predicts_head(Span, reads_text=True)
def _answers(run: LoadedModel, lines: Sequence[str], **_: Any) -> Iterable[Prediction]:
    longest = _longest(run)
    task = Answer(longest=longest, overlap=min(128, (longest - 1) // 2), unanswerable=False)
    task = task.with_global_tokens() if chooses_global(run) else task
    return task.predict(run, lines)


@predicts_head(SequenceClassifier, reads_text=True)
def _classes(run: LoadedModel, lines: Sequence[str], **_: Any) -> Iterable[Prediction]:
    """Classify each text or tab-separated pair of texts; if the head has one label, predict a number."""
    sides = split_pairs(lines)
    if _labels(run) == 1:
        return list(map(Prediction.of_number, lines, numbers(run, *sides)))
    return predictions(lines, classify(run, *sides))


@predicts_head(ImageClassifier)
def _image_classes(run: LoadedModel, paths: Sequence[str], **_: Any) -> Iterable[Prediction]:
    return predictions(paths, classify_files(run, paths))


@predicts_head(CTC)
def _speech(run: LoadedModel, paths: Sequence[str], **_: Any) -> Iterable[Prediction]:
    """Write down what is said in each file, read as `preprocessor_config.json` says."""
    return recognition_of(run).predict(run, paths)


def recognition_of(run: LoadedModel) -> RecognizeCTC:
    """The task of a CTC model of the Hub. Raises ValueError if its directory doesn't say how sounds are read."""
    spec = run.model.spec
    assert isinstance(spec, Transformer) and run.path is not None
    config = _sounds_of(run.path)
    rate = config.get("sampling_rate")
    if not isinstance(spec.output.embedding, Waveform) or not isinstance(rate, int) or rate < 1:
        raise ValueError(
            f"{run.path} doesn't say how sounds are read; put the model's own {FILE} there, with its sampling_rate"
        )
    return RecognizeCTC(front=spec.output.embedding, rate=rate, standardize=bool(config.get("do_normalize", True)))


def _sounds_of(folder: Path) -> Mapping[str, Any]:
    """Return the configuration for sounds, from a separate file or, since transformers 5, from the processor's file."""
    for name, part in ((FILE, None), ("processor_config.json", "feature_extractor")):
        if (folder / name).is_file():
            config = read_json(folder / name)
            config = config if part is None else config.get(part)
            return config if isinstance(config, dict) else {}
    return {}


@predicts_head(Detector)
def _objects(run: LoadedModel, paths: Sequence[str], *, threshold: float = SHOWN, **_: Any) -> Iterator[Prediction]:
    """Detect objects as the task `detect` does, with the classes of `id2label`. Each picture is resized by itself, as
    `preprocessor_config.json` says."""
    check_threshold(threshold)
    spec = run.model.spec
    assert isinstance(spec, Transformer) and isinstance(spec.head, Detector) and run.path is not None
    processor, classes = Preprocessor.of(run.path, spec), labels_of(run, spec.head.labels)
    for path in paths:
        pixels = processor.read(path)
        ids = torch.from_numpy(processor.numbers(pixels, str(path)))[None]
        (detected,) = detections(model_outputs(run.model, Batch({"ids": ids}).to(run.model.device)))
        objects = detected.surer(threshold).surest_first()
        yield detection_prediction(classes, processor.read, path, pixels.shape[1:], objects)


@predicts_head(DualEncoder, reads_text=True)
def _similar(
    run: LoadedModel,
    lines: Sequence[str],
    *,
    among: str | Path | Sequence[str] | None = None,
    top: int = 5,
    **_: Any,
) -> Iterable[Prediction]:
    return predict_by_towers(run, lines, among=among, top=top)


def _labels(run: LoadedModel) -> int:
    return int(getattr(run.model.spec.head, "labels", 1))


def _longest(run: LoadedModel) -> int:
    return min(run.model.max_positions or _LONGEST, _LONGEST)


def _without_roles(run: LoadedModel) -> LoadedModel:
    """The run with a tokenizer that adds only the special tokens of its file's template, for most decoders none."""
    return replace(run, tokenizer=run.words.without("bos", "eos", "cls", "sep"))


def _in_words(run: LoadedModel, text: str) -> Example:
    """Split a text into the words of its tokenizer, punctuation apart from words, as in the model's training data."""
    encoding = run.words.raw.encode(text, add_special_tokens=False)
    shown, spans, before = visible(text), list[tuple[int, int]](), None
    for number, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        start = int(shown[start])
        if start >= end:
            continue  # only white space
        if spans and number == before and not text[spans[-1][1] : start].isspace():
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
        before = number
    return {"text": text, "words": [text[start:end] for start, end in spans]}
