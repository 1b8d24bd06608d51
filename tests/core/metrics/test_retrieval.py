"""Metrics of retrieval, against a small computation of the definitions and against sentence-transformers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from qkv.core.metrics.retrieval import Retrieval


def pairs(seed: int) -> tuple[Tensor, Tensor, list[int], list[int]]:
    """Vectors of pairs in which queries and documents occur several times, with their keys."""
    random = torch.Generator().manual_seed(seed)
    queries, documents = (torch.randn(n, 8, generator=random) for n in (30, 40))
    query_keys, document_keys = (torch.randint(n, (70,), generator=random).tolist() for n in (30, 40))
    return queries[query_keys], documents[document_keys], query_keys, document_keys


def measured(*batches: tuple[Tensor, Tensor, list[int], list[int]]) -> dict[str, float]:
    metric = Retrieval()
    for batch in batches:
        metric.update(*batch)
    return {name: result.value for name, result in metric.compute().items()}


def by_definition(
    queries: Tensor, documents: Tensor, query_keys: list[int], document_keys: list[int]
) -> dict[str, float]:
    vectors = dict(zip(document_keys, documents, strict=True))
    sums = dict.fromkeys(("mrr", "ndcg@10", "recall@1", "recall@5", "recall@10", "mean_average_precision"), 0.0)
    for key, query in dict(zip(query_keys, queries, strict=True)).items():
        relevant = {other for one, other in zip(query_keys, document_keys, strict=True) if one == key}
        ordered = sorted(vectors, key=lambda d: -float(F.cosine_similarity(query, vectors[d], dim=0)))
        hits = [document in relevant for document in ordered]
        sums["mrr"] += 1 / (hits.index(True) + 1)
        for k in (1, 5, 10):
            sums[f"recall@{k}"] += sum(hits[:k]) / len(relevant)
        precisions = [sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit]
        sums["mean_average_precision"] += sum(precisions) / len(relevant)
        ideal = sum(1 / math.log2(i + 2) for i in range(min(10, len(relevant))))
        sums["ndcg@10"] += sum(hit / math.log2(i + 2) for i, hit in enumerate(hits[:10])) / ideal
    return {name: total / len(set(query_keys)) for name, total in sums.items()}


@pytest.mark.parametrize("seed", range(5))
def test_metrics_are_their_definitions(seed: int) -> None:
    assert measured(pairs(seed)) == pytest.approx(by_definition(*pairs(seed)))


def test_metrics_equal_sentence_transformers() -> None:
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    queries, documents, query_keys, document_keys = pairs(9)
    vectors = dict(zip(document_keys, documents, strict=True))
    relevant: dict[str, set[str]] = {}
    for one, other in zip(query_keys, document_keys, strict=True):
        relevant.setdefault(str(one), set()).add(str(other))
    evaluator = evaluation.InformationRetrievalEvaluator(
        {key: key for key in relevant},
        {str(key): str(key) for key in vectors},
        relevant,
        mrr_at_k=[40],
        ndcg_at_k=[10],
        precision_recall_at_k=[1, 5, 10],
        map_at_k=[40],
    )
    first = {str(key): query for key, query in zip(query_keys, queries, strict=True)}
    results = [
        [
            {"corpus_id": str(key), "score": float(F.cosine_similarity(first[query], vector, dim=0))}
            for key, vector in vectors.items()
        ]
        for query in evaluator.queries_ids
    ]
    theirs = evaluator.compute_metrics(results)
    assert measured(pairs(9)) == pytest.approx(
        {
            "mrr": theirs["mrr@k"][40],
            "ndcg@10": theirs["ndcg@k"][10],
            "mean_average_precision": theirs["map@k"][40],
            **{f"recall@{k}": theirs["recall@k"][k] for k in (1, 5, 10)},
        }
    )


def test_batches_are_one_collection() -> None:
    queries, documents, query_keys, document_keys = pairs(1)
    halves = [
        (queries[part], documents[part], query_keys[part], document_keys[part])
        for part in (slice(0, 30), slice(30, None))
    ]
    assert measured(*halves) == measured(pairs(1))


def test_worked_values_and_equal_vectors() -> None:
    """The relevant documents of the one query have the ranks 2 and 3 of three."""
    query = torch.tensor([[1.0, 0.0]] * 2 + [[0.0, -1.0]])
    documents = torch.tensor([[1.0, 1.0], [0.0, 1.0], [2.0, 0.1]])
    metric = Retrieval()
    metric.update(query, documents, ["a", "a", "b"], [0, 1, 2])
    assert metric.ranks() == [[2, 3], [1]]
    same = torch.ones(4, 3)
    collapsed = measured((same, same, [0, 1, 2, 3], [0, 1, 2, 3]))
    assert collapsed["mrr"] == 1 / 4 and collapsed["recall@1"] == 0
    assert Retrieval().compute() == {}
