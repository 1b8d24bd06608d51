"""The quality of a run before and after quantization: metrics of a split, perplexity of a text, cosines of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...core.batch import IGNORE, Batch
from ...core.metrics.text import perplexity
from ...runs.evaluate.evaluate import evaluate_run
from ...runs.inference.run import Run


@dataclass(frozen=True)
class Quality:
    """Metrics on a number of examples."""

    metrics: dict[str, float]
    examples: int
    evaluated_on: str


def of_test_split(run: Run, max_examples: int | None = None) -> Quality:
    """The metrics of the run's recipe."""
    result = evaluate_run(run, "test", max_examples=max_examples)
    return Quality(result.metrics, result.examples, "the test split")


@torch.no_grad()
def of_rows(run: Run, batches: Sequence[Batch], where: str) -> Quality:
    """Loss and perplexity of a language model on rows of ids."""
    nll = count = rows = 0.0
    for batch in batches:
        ids, layout = batch.inputs["ids"], batch.inputs["layout"]
        valid = layout.valid.expand(ids.shape)
        labels = torch.where(valid[:, 1:], ids[:, 1:], IGNORE)
        labels = torch.cat([labels, torch.full_like(ids[:, :1], IGNORE)], 1)
        sums = run.model(ids=ids, layout=layout, labels=labels)
        nll, count, rows = nll + float(sums.nll), count + float(sums.n_labels), rows + batch.rows
    return Quality({"loss": nll / count, "perplexity": perplexity(nll, int(count))}, int(rows), where)


def of_vectors(run: Run, other: Run, texts: Sequence[str], where: str) -> Quality:
    """How close an encoder's embeddings, pooled as `run.embed` pools them, are to the original's: mean and least cosine."""
    cosines = torch.stack(
        [
            torch.cosine_similarity(*pair, dim=0).cpu()
            for pair in zip(_embedded(run, texts), _embedded(other, texts), strict=True)
        ]
    )
    return Quality({"cosine": float(cosines.mean()), "lowest cosine": float(cosines.min())}, len(texts), where)


def _embedded(run: Run, texts: Sequence[str]) -> list[torch.Tensor]:
    return [vector.float() for vector in run.embed(list(texts))]
