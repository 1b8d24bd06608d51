"""Recall@k of texts found for images and images found for texts, and the similarity matrix of samples."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import MeasuredModel, Metric, MetricValue
from ....core.metrics.display import register
from ....core.metrics.extremes import Extremes, Ranking
from ....core.metrics.retrieval import ranks_of
from ....data.media.images import denormalized
from ....data.media.png import png
from ....nn.models.dual_encoder import Similarities

CUTOFFS = (1, 5)
for _k in CUTOFFS:
    register(
        f"text_recall@{_k}", f"Text recall@{_k}", "fraction", higher_is_better=True, about="images whose text is found"
    )
    register(
        f"image_recall@{_k}",
        f"Image recall@{_k}",
        "fraction",
        higher_is_better=True,
        about="texts whose image is found",
    )
register("rank", "Rank of the text", higher_is_better=False, part=True)

_KEPT = 48  # pictures kept to be shown
_MATRIX = 10  # images and texts in the matrix of a report
_SIDE = 160  # pixels of a picture in the report
_SHOWN = 3  # texts beside a picture


class RetrievalMetric(Metric):
    """Measures dual encoders, over all images and texts of a split:

    text_recall@k:  the share of images whose own text is among the k texts of the highest cosine. Of classes written as
                    texts, k = 1 is the accuracy of zero-shot classification.
    image_recall@k: the share of texts that find one of their images among k.
    recall@1:       the mean of both for k = 1.

    Equal texts are one text, and each of its images is right.
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._scale = (mean, std)
        self._images: list[Tensor] = []
        self._texts: dict[str, Tensor] = {}
        self._keys: dict[str, int] = {}
        self._pairs: list[tuple[int, str]] = []  # the number of the image, and its text
        self._pictures: list[str] = []

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        super().evaluate(model, batch)
        for row in range(min(_KEPT - len(self._pictures), len(batch.texts))):
            pixels = batch.inputs["pixels"][row].float().cpu().numpy()
            self._pictures.append(png(denormalized(pixels, *self._scale), _SIDE))

    def update(self, outputs: Similarities, batch: Batch) -> None:
        assert outputs.image is not None and outputs.text is not None
        for about, image, text in zip(batch.texts, outputs.image, outputs.text, strict=True):
            number = self._keys.setdefault(about.get("image") or f"number {len(self._pairs)}", len(self._images))
            if number == len(self._images):
                self._images.append(image)
            self._texts.setdefault(about["text"], text)
            self._pairs.append((number, about["text"]))

    def _scores(self) -> Float[Tensor, "images texts"]:
        return torch.stack(self._images) @ torch.stack(list(self._texts.values())).mT

    def compute(self) -> dict[str, MetricValue]:
        if not self._pairs:
            return {}
        places = {text: i for i, text in enumerate(self._texts)}
        of_image: list[set[int]] = [set() for _ in self._images]
        for image, text in self._pairs:
            of_image[image].add(places[text])
        return recalls_of(self._scores(), of_image)

    def samples(self, count: int) -> list[dict[str, Any]]:
        """The matrix of some images and texts, then images with the texts of the highest cosine."""
        if not self._pairs or not count:
            return []
        scores, texts = self._scores(), list(self._texts)
        shown = self._pairs[: len(self._pictures)]
        return [self._matrix(scores, texts, shown), *(self._sample(i, scores, texts) for i in range(len(shown)))][
            :count
        ]

    def extremes(self) -> Extremes | None:
        if not self._pairs:
            return None
        ranking, scores, texts = Ranking("rank"), self._scores(), list(self._texts)
        for i, (image, text) in enumerate(self._pairs[: len(self._pictures)]):
            own = scores[image, texts.index(text)]
            ranking.add(float((scores[image] >= own).sum()), partial(self._sample, i, scores, texts), float(own))
        return ranking.extremes()

    def _sample(self, i: int, scores: Tensor, texts: list[str]) -> dict[str, Any]:
        image, text = self._pairs[i]
        best = scores[image].topk(min(_SHOWN, len(texts)))
        listed = [
            [texts[j], round(value, 3)] for value, j in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        picture = {"kind": "cosines", "image": self._pictures[i], "texts": listed}
        return {"source": "", "output": listed[0][0], "target": text, "picture": picture}

    def _matrix(self, scores: Tensor, texts: list[str], shown: list[tuple[int, str]]) -> dict[str, Any]:
        chosen: dict[str, int] = {}
        for i, (_, text) in enumerate(shown):
            chosen.setdefault(text, i)
        rows = list(chosen.values())[:_MATRIX]
        columns = [texts.index(shown[i][1]) for i in rows]
        table = scores[[shown[i][0] for i in rows]][:, columns]
        right = int((table.argmax(1) == torch.arange(len(rows))).sum())
        picture = {
            "kind": "similarities",
            "images": [self._pictures[i] for i in rows],
            "texts": [shown[i][1] for i in rows],
            "cosines": [[round(value, 3) for value in row] for row in table.tolist()],
        }
        own = f"the own text of {right} of {len(rows)} is nearest"
        return {"source": "cosines of images and texts", "output": own, "picture": picture}


def recalls(scores: Float[Tensor, "N N"], texts: list[str]) -> dict[str, MetricValue]:
    """The recalls of scores of each image with the text of each image."""
    first = {text: i for i, text in reversed(list(enumerate(texts)))}
    columns = sorted(first.values())
    places = {texts[i]: n for n, i in enumerate(columns)}
    return recalls_of(scores[:, columns], [{places[text]} for text in texts])


def recalls_of(scores: Float[Tensor, "N T"], texts_of: list[set[int]]) -> dict[str, MetricValue]:
    """The recalls in both directions; `texts_of` are the numbers of each image's texts."""
    images_of: list[list[int]] = [[] for _ in range(scores.shape[1])]
    for image, own in enumerate(texts_of):
        for text in own:
            images_of[text].append(image)
    first = {
        "text": ranks_of([scores.clone()], [sorted(own) for own in texts_of]),
        "image": ranks_of([scores.mT.clone()], images_of),
    }
    details = f"images:{scores.shape[0]}|texts:{scores.shape[1]}|score:cosine"
    values = {
        f"{name}_recall@{k}": MetricValue(sum(rank[0] <= k for rank in ranks) / len(ranks), details)
        for name, ranks in first.items()
        for k in CUTOFFS
    }
    mean = (values["text_recall@1"].value + values["image_recall@1"].value) / 2
    return {**values, "recall@1": MetricValue(mean, f"mean of both directions|{details}")}
