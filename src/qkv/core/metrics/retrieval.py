"""Metrics of retrieval by embeddings: mean reciprocal rank (MRR), NDCG@k, recall@k and mean average precision (MAP)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ..several import worded
from .base import MetricValue
from .display import register

CUTOFFS = (1, 5, 10)  # the k of recall@k; NDCG takes the last
ROWS = 256  # queries compared with all documents at once

register("mrr", "MRR", "fraction", higher_is_better=True, about="mean of 1 ÷ rank of the first relevant document")
register(
    "mean_average_precision", "MAP", "fraction", higher_is_better=True, about="mean of the precision at relevant ranks"
)
register("ndcg@10", "NDCG@10", "fraction", higher_is_better=True)
for _k in CUTOFFS:
    register(f"recall@{_k}", f"Recall@{_k}", "fraction", higher_is_better=True)


class Retrieval:
    """Ranks all documents for every query by the cosine of their vectors.

    With the ranks r_1 < … < r_R of a query's R relevant documents, the means over the queries of

        MRR = 1 / r_1,   recall@k = |{j : r_j ≤ k}| / R,   MAP = Σ_j (j / r_j) / R,
        NDCG@k = Σ_{j : r_j ≤ k} 1 / log2(r_j + 1) / Σ_{j ≤ min(R, k)} 1 / log2(j + 1)

    are defined as in trec_eval (`recip_rank`, `recall`, `map`, `ndcg_cut`) with binary relevance. An irrelevant document
    with the same cosine as a relevant one ranks before it, so a model whose vectors are all equal scores low.
    """

    def __init__(self) -> None:
        self._queries: dict[Hashable, Tensor] = {}
        self._documents: dict[Hashable, Tensor] = {}
        self._relevant: defaultdict[Hashable, set[Hashable]] = defaultdict(set)

    def update(
        self, queries: Tensor, documents: Tensor, query_keys: Sequence[Hashable], document_keys: Sequence[Hashable]
    ) -> None:
        """Add pairs: document i is relevant to query i. Vectors are (B, D). Equal keys are the same query or document, which
        keeps its first vector."""
        for query, document, one, other in zip(queries, documents, query_keys, document_keys, strict=True):
            self._queries.setdefault(one, F.normalize(query.float(), dim=-1))
            self._documents.setdefault(other, F.normalize(document.float(), dim=-1))
            self._relevant[one].add(other)

    def compute(self) -> dict[str, MetricValue]:
        """Return the metrics by name; empty if there are no queries."""
        return metrics_of(self.ranks(), len(self._documents)) if self._queries else {}

    def ranks(self) -> list[list[int]]:
        """Return the ranks of each query's relevant documents, from 1, ascending."""
        documents, queries = (torch.stack(list(side.values())) for side in (self._documents, self._queries))
        row_of = {key: i for i, key in enumerate(self._documents)}
        relevant = [[row_of[other] for other in self._relevant[key]] for key in self._queries]
        return ranks_of((part @ documents.T for part in queries.split(ROWS)), relevant)


@worded
def ranks_of(blocks: Iterable[Tensor], relevant: Sequence[Sequence[int]]) -> list[list[int]]:
    """The ranks of each query's relevant documents, from 1, ascending. `blocks` are rows of scores (queries, documents), a
    part of the queries each; `relevant` has the indices of each query's documents."""
    ranks = []
    for row, right in zip((row for block in blocks for row in block), relevant, strict=True):
        places = torch.tensor(sorted(right))
        best_first = row[places].sort(descending=True).values
        row[places] = -math.inf
        before = (row >= best_first[:, None]).sum(-1)
        ranks.append((before + torch.arange(1, len(places) + 1)).tolist())
    return ranks


@worded
def metrics_of(ranks: Sequence[Sequence[int]], documents: int) -> dict[str, MetricValue]:
    """The metrics of `Retrieval` from the ranks of each query's relevant ones among so many documents."""
    scores = {
        "mrr": [1 / places[0] for places in ranks],
        "ndcg@10": [_ndcg(places, CUTOFFS[-1]) for places in ranks],
        **{f"recall@{k}": [sum(rank <= k for rank in places) / len(places) for places in ranks] for k in CUTOFFS},
        "mean_average_precision": [sum(j / rank for j, rank in enumerate(places, 1)) / len(places) for places in ranks],
    }
    details = f"queries:{len(ranks)}|documents:{documents}|score:cosine"
    return {name: MetricValue(math.fsum(values) / len(values), details) for name, values in scores.items()}


def _ndcg(ranks: Sequence[int], k: int) -> float:
    gain = sum(1 / math.log2(rank + 1) for rank in ranks if rank <= k)
    return gain / sum(1 / math.log2(j + 1) for j in range(1, min(len(ranks), k) + 1))
