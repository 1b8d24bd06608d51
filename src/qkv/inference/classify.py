"""What class a text is of, and how alike two texts are, by a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.layout import Layout
from ..data.task import Task
from ..models.heads.sequence import SentenceVector, SequenceClassifier
from ..models.long_texts import has_global_attention, reads_unpadded
from ..models.transformer import Transformer
from ..tasks.classes import Classified, classified
from ..tasks.framing import framed
from ..tasks.text_classification.task import Classify
from ..tasks.text_regression.task import Regress
from ..tasks.whole_texts import Sentences
from . import unknown_words
from .embed import embed
from .loaded import LoadedModel
from .text import batches

Rows = list[tuple[list[int], list[int]]]
"""The ids of each row, and their token types."""


def classify(run: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[Classified]:
    """The class of each text, or of each text beside its pair. Classes have the names of the training data, or those of the
    directory (`id2label`).

    Raises ValueError where the model has no sequence classifier, or an empty text is given.
    """
    names = classes_of(run)
    return ranked(run, names, torch.stack(_scores(run, texts, pairs)))


def similarity(run: LoadedModel, a: Sequence[str], b: Sequence[str]) -> list[float]:
    """How alike a[i] and b[i] are: the score of a model that was trained to give one for both together, else the cosine of
    the vectors that the model has for each.

    Vectors are those of the head `sentence-vector`; of a model without one, those of `embed`.
    """
    if len(a) != len(b):
        raise ValueError(f"there are {len(a)} first texts and {len(b)} second ones; each needs the other")
    head = run.model.spec.head
    if isinstance(head, SequenceClassifier) and head.labels == 1:
        return numbers(run, a, b)
    if isinstance(head, SentenceVector) or (isinstance(head, SequenceClassifier) and head.labels is None):
        first, second = _scores(run, a), _scores(run, b)
    else:
        first, second = (embed(run, texts) for texts in (a, b))
    return [float(F.cosine_similarity(u, v, dim=-1)) for u, v in zip(first, second, strict=True)]


def numbers(run: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
    """The number of each text, or of each text beside its pair, by a sequence classifier with one label: in the units of
    the data that it was trained on here; of a model of the Hub as the model gives it.
    """
    task = _task(run)
    scores = [float(score) for score in _scores(run, texts, pairs)]
    return [task.score(score) for score in scores] if isinstance(task, Regress) else scores


def classes_of(run: LoadedModel) -> tuple[str, ...]:
    """The names of a model's classes. Raises ValueError where it tells none apart."""
    head, task = run.model.spec.head, _task(run)
    if not isinstance(head, SequenceClassifier) or head.labels is None:
        has = "no head" if head is None else f"the head {head.kind}"
        raise ValueError(
            f"{run.path or 'this model'} has {has}, which tells no classes apart; train one: qkv train classify model=…"
        )
    if head.labels == 1:
        raise ValueError(f"{run.path or 'this model'} gives a number, not a class; ask for it by qkv predict")
    if isinstance(task, Classify) and len(task.classes) == head.labels:
        return task.classes
    return labels_of(run, head.labels)


def labels_of(run: LoadedModel, count: int) -> tuple[str, ...]:
    """What a model of the Hub calls its labels (`id2label`)."""
    said: Mapping[Any, str] = (run.origin.config.get("id2label") if run.origin is not None else None) or {}
    return tuple(str(said.get(str(i), said.get(i, f"LABEL_{i}"))) for i in range(count))


def ranked(run: LoadedModel, names: Sequence[str], scores: Tensor) -> list[Classified]:
    """Scores (B, classes) as probabilities of classes of these names."""
    several = run.origin is not None and run.origin.config.get("problem_type") == "multi_label_classification"
    return classified(names, scores, several)


def _task(run: LoadedModel) -> Task | None:
    return None if run.recipe is None else run.recipe.task


@torch.inference_mode()
def _scores(run: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[Tensor]:
    """What the head says of each text, in fp32 on the CPU."""
    if pairs is not None and len(pairs) != len(texts):
        raise ValueError(f"there are {len(texts)} texts and {len(pairs)} pairs; give a pair for each text")
    empty = next((i for i, text in enumerate([*texts, *(pairs or ())]) if not text.strip()), None)
    if empty is not None:
        raise ValueError(f"text {empty % len(texts) + 1} is empty, so there is nothing to read")
    rows = _rows(run, texts, pairs)
    unknown_words.warn(run, [*texts, *(pairs or ())], [ids for ids, _ in rows])
    made: list[Tensor] = [torch.empty(0)] * len(rows)
    for group in batches([len(ids) for ids, _ in rows], padded=not reads_unpadded(run.model)):
        outputs = run.model(**inputs_of(run, [rows[i] for i in group], first_sees_all=_first_sees_all(run)))
        for i, output in zip(group, outputs.float().cpu(), strict=True):
            made[i] = output
    return made


def _rows(run: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None) -> Rows:
    """Texts as the model was trained to read them: on the Hub by its tokenizer's template, here by its task."""
    text_model, task = run.text_model, _task(run)
    tokenizer = text_model.tokenizer
    if text_model.ids is not None:
        rows = tokenizer.with_template(texts, pairs)
        return [(made.ids[:stop], made.types[:stop]) for made in rows for stop in [_stop_of(run, made.ids)]]
    room = task.longest if isinstance(task, Sentences) else run.model.max_positions
    sides = [tokenizer.encode_batch(side) for side in (texts, pairs) if side is not None]
    made = [framed(tokenizer, *both, room=room) for both in zip(*sides, strict=True)]
    return [(one.ids.tolist(), one.token_types.tolist()) for one in made]


def _stop_of(run: LoadedModel, ids: list[int]) -> int:
    """How many of a row's tokens are read. The Hub's decoders classify the last one whose id is not that of padding: where a
    text ends with this very token, as where `</s>` pads too, what comes before it."""
    spec, pad = run.model.spec, None if run.origin is None else run.origin.config.get("pad_token_id")
    if not isinstance(spec, Transformer) or spec.encoder is not None:
        return len(ids)
    return 1 + max((place for place, token in enumerate(ids) if token != pad), default=0)


def chooses_global(run: LoadedModel) -> bool:
    """Whether a Hub model has global attention, whose tokens its own library chooses by what it is asked (Longformer). For a
    model trained here, its task says so."""
    return run.recipe is None and has_global_attention(run.model)


def _first_sees_all(run: LoadedModel) -> bool:
    """Longformer's way (Beltagy et al. 2020, §3): the token that is read sees all, as it did when the model was trained."""
    return chooses_global(run) or getattr(_task(run), "global_tokens", None) == "first"


def inputs_of(run: LoadedModel, rows: Rows, *, first_sees_all: bool = False) -> dict[str, Any]:
    """What the model reads, padded on the right. An encoder–decoder's decoder reads the same text, one token behind."""
    spec, device = run.model.spec, run.model.device
    lengths = [len(ids) for ids, _ in rows]
    ids, types = torch.zeros(2, len(rows), max(lengths), dtype=torch.long, device=device)
    for i, (row, kinds) in enumerate(rows):
        ids[i, : len(row)], types[i, : len(row)] = torch.tensor(row), torch.tensor(kinds)
    layout = Layout.from_lengths(lengths, device=device)
    assert isinstance(spec, Transformer)  # heads that give scores are on no other
    first = spec.encoder or spec.output
    if first_sees_all:
        layout = layout.with_global((torch.arange(max(lengths), device=device) == 0).expand(len(rows), -1))
    inputs: dict[str, Any] = {"ids": ids, "layout": layout}
    if getattr(first.embedding, "token_types", 0) > 1:
        inputs["token_types"] = types
    if run.model.is_encoder_decoder:
        start = torch.full_like(ids[:, :1], run.text_model.start or 0)
        inputs |= {"target": torch.cat([start, ids[:, :-1]], 1), "target_layout": layout}
    return inputs
