"""What a model says that came without a recipe, such as one of the Hub: by its head, as the model's own library asks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..data.source import Example
from ..metrics.entities import scheme_of
from ..models.heads.text import SequenceClassifier, Span, TokenClassifier
from ..models.heads.vision import Detector, ImageClassifier
from ..tasks.detection.predict import detected_by_head
from ..tasks.pieces import visible
from ..tasks.prediction import Prediction
from ..tasks.question_answering.predict import answered
from ..tasks.question_answering.task import Answer
from ..tasks.tagging.predict import tagged
from ..tasks.tagging.task import Tag
from ..tasks.text_regression.predict import rated
from .classify import chooses_global, labels_of
from .loaded import LoadedModel
from .predict_classes import files_classified, texts_classified
from .uses import advice, name_of

_LONGEST = 384  # tokens of a row, where the model has room for them


def asked_by_head(run: LoadedModel, given: Sequence[str], threshold: float) -> Iterator[Prediction]:
    """A tag for each word, answers, classes or numbers of texts, classes of pictures, objects in them.

    Raises ValueError for a model whose head says none of these.
    """
    longest = min(run.model.max_positions or _LONGEST, _LONGEST)
    match run.model.spec.head:
        case TokenClassifier(labels=count) if count > 1:
            tags = labels_of(run, count)
            scheme = scheme_of(tags)
            # An I-X that nothing has begun is an entity too, as `transformers` has it.
            task = Tag(tags=tags, scheme="conll" if scheme == "iob2" else scheme, symbols=False, longest=longest)
            yield from tagged(_as_filed(run), task, given, lambda text: _in_words(run, text))
        case Span():
            overlap = min(128, (longest - 1) // 2)
            asks = Answer(longest=longest, overlap=overlap, unanswerable=False)
            yield from answered(run, asks.with_global_tokens() if chooses_global(run) else asks, given)
        case SequenceClassifier(labels=1):
            yield from rated(run, given)
        case SequenceClassifier():
            yield from texts_classified(run, given)
        case ImageClassifier():
            yield from files_classified(run, given)
        case Detector():
            yield from detected_by_head(run, given, threshold)
        case head:
            has = "no head" if head is None else f"the head {head.kind}"
            raise ValueError(
                f"{name_of(run)} has {has} and no recipe.yaml that says what it was taught, so it answers nothing; "
                f"{advice(run)}, or train it on a task: model=… in a recipe"
            )


def _as_filed(run: LoadedModel) -> LoadedModel:
    """The run with a tokenizer that puts around a text what its file says and nothing else, which for most decoders is
    nothing."""
    return replace(run, tokenizer=run.text_model.tokenizer.without("bos", "eos", "cls", "sep"))


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
    return {"text": text, "words": [text[start:end] for start, end in spans], "tags": [""] * len(spans)}
