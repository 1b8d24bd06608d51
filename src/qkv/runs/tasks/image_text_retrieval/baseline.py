"""What simple methods retrieve: words predicted from small pictures by ridge regression, and chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ....core.metrics.baselines import Baseline, TfIdf
from ....data.media.images import Pixels, resized
from .metric import recalls

LEARNED = 4000  # training examples that the regression learns from
_SIDE = 16  # pixels of the small pictures
_RIDGE = 1e-2  # times the mean square of a pixel

Pair = tuple[Pixels, str]


def ridge_retrieval(training: Sequence[Pair], tested: Sequence[Pair]) -> list[Baseline]:
    """Ridge regression of TF-IDF vectors of the texts on pictures of 16 × 16 pixels: a picture's text is the one nearest to
    what the regression predicts, by the cosine. And chance."""
    words = TfIdf([text for _, text in training])
    seen, truth = _flat(training), words([text for _, text in training]).toarray()
    mean, center = seen.mean(0), truth.mean(0)
    centered = seen - mean
    gram = centered.T @ centered
    gram[np.diag_indices_from(gram)] += _RIDGE * len(seen) * (float(centered.var()) or 1.0)  # of equal pictures
    weights = np.linalg.solve(gram, centered.T @ (truth - center))
    predicted = (_flat(tested) - mean) @ weights + center
    predicted /= np.linalg.norm(predicted, axis=1, keepdims=True).clip(1e-12)
    texts = [text for _, text in tested]
    scores = torch.from_numpy(predicted @ words(texts).toarray().T)
    metrics = {name: one.value for name, one in recalls(scores, texts).items()}
    distinct = len(set(texts))
    chance = {
        "text_recall@1": 1 / distinct,
        "image_recall@1": sum(texts.count(t) / len(texts) for t in set(texts)) / distinct,
    }
    about = "words predicted from pictures of 16 × 16 pixels"
    chance["recall@1"] = (chance["text_recall@1"] + chance["image_recall@1"]) / 2
    return [Baseline("ridge regression", metrics, about), Baseline("chance", chance, "drawn at random")]


def _flat(pairs: Sequence[Pair]) -> NDArray[np.float64]:
    return np.stack([resized(pixels, (_SIDE, _SIDE)).reshape(-1) for pixels, _ in pairs]) / 255
