"""Text classification, regression and similarity by a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...generation.prompts import length_groups, padded
from ...io.directories.sentence_transformers import SIMILARITIES, similarity_of
from ...nn.models.heads.sequence import SentenceVector, SequenceClassifier
from ...nn.models.long_texts import has_global_attention, reads_unpadded
from ...nn.models.transformer import Transformer
from ..tasks.classes import Classified, classified
from ..tasks.framing import framed
from ..tasks.whole_texts import Sentences
from . import unknown_words
from .embed import embed
from .loaded import LoadedModel
from .output import SLOTS

Rows = list[tuple[list[int], list[int]]]
"""(ids, token types) of each row."""


def classify(run: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[Classified]:
    """Classify each text, or each pair of texts. Class names come from the training data, or of the directory
    (`id2label`).

    Raises ValueError if the model has no sequence classifier, or a text is empty.
    """
    names = classes_of(run)
    return ranked(run, names, torch.stack(_scores(run, texts, pairs))) if texts else []


def similarity(run: LoadedModel, a: Sequence[str], b: Sequence[str]) -> list[float]:
    """Return the similarity of a[i] and b[i]: the score of a model trained on pairs, else of two vectors.

    The vectors come from the head `sentence-vector`, or without one from `embed`. Their similarity is the cosine, or that
    of `embed`'s vectors which a directory of sentence-transformers chooses: the dot product, or the negative of a distance.
    """
    if len(a) != len(b):
        raise ValueError(f"the two lists of texts differ in length ({len(a)} and {len(b)}); give pairs")
    head = run.model.spec.head
    if isinstance(head, SequenceClassifier) and head.labels == 1:
        return numbers(run, a, b)
    has_vector = isinstance(head, SentenceVector) or (isinstance(head, SequenceClassifier) and head.labels is None)
    name = similarity_of(run.path)
    vectors = _scores if has_vector and name == "cosine" else embed
    if not all(text.strip() for text in [*a, *b]):  # which an error will name by its place
        first, second = vectors(run, a), vectors(run, b)
        return [float(SIMILARITIES[name](u, v)) for u, v in zip(first, second, strict=True)]
    texts = list(dict.fromkeys([*a, *b]))  # a query stands beside each of its documents
    found = dict(zip(texts, vectors(run, texts), strict=True))
    return [float(SIMILARITIES[name](found[u], found[v])) for u, v in zip(a, b, strict=True)]


def numbers(run: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
    """Predict a number for each text, or each pair of texts, by a sequence classifier with one label: in the units of the
    training data, or for a Hub model as the model returns it.
    """
    from ..tasks.text_regression.task import Regress

    task = run.trained_on
    scores = [float(score) for score in _scores(run, texts, pairs)]
    return [task.score(score) for score in scores] if isinstance(task, Regress) else scores


def classes_of(run: LoadedModel) -> tuple[str, ...]:
    """Return the names of a model's classes. Raises ValueError if it is no classifier."""
    from ..tasks.text_classification.task import Classify

    head, task = run.model.spec.head, run.trained_on
    if not isinstance(head, SequenceClassifier) or head.labels is None:
        has = "no head" if head is None else f"the head {head.kind}"
        raise ValueError(
            f"{run.name} has {has}, which does not classify; train a classifier by `qkv train classify model=…`"
        )
    if head.labels == 1:
        raise ValueError(f"{run.name} predicts a number, not a class; use `qkv predict`")
    if isinstance(task, Classify) and len(task.classes) == head.labels:
        return task.classes
    return labels_of(run, head.labels)


def labels_of(run: LoadedModel, count: int) -> tuple[str, ...]:
    """Return the label names of a Hub model (`id2label`)."""
    names: Mapping[Any, str] = (run.origin.config.get("id2label") if run.origin is not None else None) or {}
    return tuple(str(names.get(str(i), names.get(i, f"LABEL_{i}"))) for i in range(count))


def ranked(run: LoadedModel, names: Sequence[str], scores: Tensor) -> list[Classified]:
    """Turn scores (B, classes) into probabilities of the named classes."""
    return classified(names, scores, is_multi_label(run))


def is_multi_label(run: LoadedModel) -> bool:
    """Whether the classes of a Hub model don't exclude each other."""
    return run.origin is not None and run.origin.config.get("problem_type") == "multi_label_classification"


@torch.inference_mode()
def _scores(run: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[Tensor]:
    """Return the head's output for each text, in fp32 on the CPU."""
    if pairs is not None and len(pairs) != len(texts):
        raise ValueError(
            f"texts and pairs differ in number ({len(texts)} and {len(pairs)}); give one pair for each text"
        )
    empty = next((i for i, text in enumerate([*texts, *(pairs or ())]) if not text.strip()), None)
    if empty is not None:
        raise ValueError(f"text {empty % len(texts) + 1} is empty, so there is nothing to read")
    rows = _rows(run, texts, pairs)
    unknown_words.warn(run, [*texts, *(pairs or ())], [ids for ids, _ in rows])
    scores: list[Tensor] = [torch.empty(0)] * len(rows)
    for group in length_groups([len(ids) for ids, _ in rows], SLOTS, padded=not reads_unpadded(run.model)):
        outputs = run.model(**inputs_of(run, [rows[i] for i in group], first_sees_all=_first_sees_all(run)))
        for i, output in zip(group, outputs.float().cpu(), strict=True):
            scores[i] = output
    return scores


def _rows(run: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None) -> Rows:
    """Encode texts as the model was trained on them: a Hub model's by its tokenizer's template, others by their task."""
    task = run.trained_on
    tokenizer = run.words
    if run.ids is not None:
        rows = tokenizer.with_template(texts, pairs)
        return [(row.ids[:stop], row.types[:stop]) for row in rows for stop in [_stop_of(run, row.ids)]]
    room = task.longest if isinstance(task, Sentences) else run.model.max_positions
    sides = [tokenizer.encode_batch(side) for side in (texts, pairs) if side is not None]
    items = [framed(tokenizer, *both, room=room) for both in zip(*sides, strict=True)]
    return [(item.ids.tolist(), item.token_types.tolist()) for item in items]


def longest_classified(run: LoadedModel) -> int | None:
    """The most tokens of a text that a classifier reads; None if it was not trained here, or is none."""
    task, head = run.trained_on, getattr(run.model.spec, "head", None)
    return task.longest if isinstance(task, Sentences) and isinstance(head, SequenceClassifier) else None


def _stop_of(run: LoadedModel, ids: list[int]) -> int:
    """Return how many of a row's tokens are read: in a Hub decoder, those up to the last whose id is not that of padding,
    even if padding tokens such as `</s>` belong to the text."""
    spec, pad = run.model.spec, None if run.origin is None else run.origin.config.get("pad_token_id")
    if not isinstance(spec, Transformer) or spec.encoder is not None:
        return len(ids)
    return 1 + max((place for place, token in enumerate(ids) if token != pad), default=0)


def chooses_global(run: LoadedModel) -> bool:
    """Whether a Hub model has global attention (Longformer), whose global tokens `transformers` chooses by the head. A model
    trained here has them from its task."""
    return run.recipe is None and has_global_attention(run.model)


def _first_sees_all(run: LoadedModel) -> bool:
    """Whether the first token, which the classifier reads, has global attention (Longformer, Beltagy et al. 2020, §3)."""
    return chooses_global(run) or getattr(run.trained_on, "global_tokens", None) == "first"


def inputs_of(run: LoadedModel, rows: Rows, *, first_sees_all: bool = False) -> dict[str, Any]:
    """The model's inputs, padded on the right. An encoder–decoder's decoder reads the same text, one token behind."""
    spec, device = run.model.spec, run.model.device
    ids, layout = padded([ids for ids, _ in rows], device)
    assert isinstance(spec, Transformer)  # no other model has such a head
    first = spec.encoder or spec.output
    if first_sees_all:
        layout = layout.with_global((torch.arange(ids.shape[1], device=device) == 0).expand(len(rows), -1))
    inputs: dict[str, Any] = {"ids": ids, "layout": layout}
    if getattr(first.embedding, "token_types", 0) > 1:
        inputs["token_types"] = padded([types for _, types in rows], device)[0]
    if run.model.is_encoder_decoder:
        target, layout = padded([_behind(run, row) for row, _ in rows], device)
        inputs |= {"target": target, "target_layout": layout}
    return inputs


def _behind(run: LoadedModel, ids: list[int]) -> list[int]:
    """Return the input of the decoder for a text, as far as its last `</s>`, whose output is classified."""
    end = None if run.origin is None else run.origin.config.get("eos_token_id", 2)
    ends = [i for i, token in enumerate(ids) if token == end]
    return run.shifted(ids)[: ends[-1] + 1 if ends else len(ids)]
