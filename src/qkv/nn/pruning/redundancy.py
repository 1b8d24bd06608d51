"""Redundancy of heads: how alike their outputs are, and how much of their variance few of them cover.

    CKA(X, Y) = ‖Yᵀ X‖² / (‖Xᵀ X‖ ‖Yᵀ Y‖)      X, Y (N, E): outputs of two heads for N tokens, centered; Frobenius norms

Linear CKA (Kornblith et al. 2019) is 1 for outputs that are equal up to a rotation and a factor, and 0 for unrelated ones.
It is the cosine between the heads' similarities of tokens, X Xᵀ and Y Yᵀ. The eigenvalues of the matrix of all heads are
therefore the variances of the principal components of these directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...core.batch import Batch
from ..activations import record
from .units import AttentionLayer, running_passes

TOKENS = 2048  # of each stack, at most


@dataclass(frozen=True)
class Redundancy:
    """Of the heads of one stack.

    heads:      names, as "0.3" for head 3 of layer 0, and "0.cross.3".
    similarity: linear CKA of the outputs of each two heads.
    covered:    share of the variance that the first 1, 2, … principal components cover.
    tokens:     on which outputs were compared.
    """

    heads: list[str]
    similarity: list[list[float]]
    covered: list[float]
    tokens: int

    def needed(self, share: float) -> int:
        """The number of components that cover a share of the variance."""
        return next((i for i, covered in enumerate(self.covered, 1) if covered >= share - 1e-9), len(self.covered))

    def most_alike(self, count: int) -> list[tuple[str, str, float]]:
        """The pairs of heads with the most similar outputs."""
        pairs = [
            (self.heads[i], self.heads[j], self.similarity[i][j])
            for i in range(len(self.heads))
            for j in range(i + 1, len(self.heads))
        ]
        return sorted(pairs, key=lambda pair: -pair[2])[:count]


def redundancy(
    model: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[nn.Module, Batch], object],
    layers: Mapping[str, AttentionLayer],
) -> dict[str, Redundancy]:
    """Compare the heads of each stack, over at most 2,048 tokens, in passes that compute `loss` of each batch."""
    outputs = head_outputs(model, batches, loss, layers)
    found = {}
    for stack in dict.fromkeys(name.partition(".")[0] for name in outputs):
        own = {name: x for name, x in outputs.items() if name.partition(".")[0] == stack}
        names = [f"{name.partition('.')[2]}.{head}" for name, x in own.items() for head in range(x.shape[1])]
        matrix = linear_cka(list(own.values()))
        tokens = len(next(iter(own.values())))
        found[stack] = Redundancy(names, _rounded(matrix), [round(v, 6) for v in covered(matrix).tolist()], tokens)
    return found


@torch.no_grad()
def head_outputs(
    model: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[nn.Module, Batch], object],
    layers: Mapping[str, AttentionLayer],
    limit: int = TOKENS,
) -> dict[str, Float[Tensor, "N H E"]]:
    """Return the outputs of the heads of each layer for the first tokens that are not padding, at most `limit`."""
    read: dict[str, list[Tensor]] = {name: [] for name in layers}
    training = model.training
    model.eval()
    try:
        for batch in batches:
            with running_passes(model) as running, record(model, [layer.site for layer in layers.values()]) as seen:
                loss(model, batch)
            for name, layer in layers.items():
                x = seen[layer.site]
                valid = running[name.partition(".")[0]].layout.valid.expand(x.shape[:2])
                read[name].append(x[valid].float().cpu())
            if all(sum(map(len, several)) >= limit for several in read.values()):
                break
    finally:
        model.train(training)
    return {name: torch.cat(several)[:limit] for name, several in read.items()}


def linear_cka(outputs: Sequence[Float[Tensor, "N h E"]]) -> Float[Tensor, "H H"]:
    """Return the linear CKA of each two of all heads, layer after layer. Heads without variance are like no other."""
    centered = [x.double() - x.double().mean(0) for x in outputs]
    rows = [torch.cat([_squares(x, y) for y in centered], 1) for x in centered]
    squares = torch.cat(rows)  # ‖Yᵀ X‖² of each two heads
    own = squares.diagonal().sqrt()
    scale = own[:, None] * own[None, :]
    similarity = torch.where(scale > 0, squares / scale.clamp(min=1e-300), 0.0)
    return similarity.fill_diagonal_(1.0)


def _squares(x: Tensor, y: Tensor) -> Tensor:
    """‖Yᵀ X‖² of each head of x and each of y, (h, g)."""
    product = x.flatten(1).T @ y.flatten(1)
    return product.square().view(x.shape[1], x.shape[2], y.shape[1], y.shape[2]).sum((1, 3))


def covered(similarity: Float[Tensor, "H H"]) -> Float[Tensor, " H"]:
    """Return the share of variance that the first 1, 2, … principal components of the heads cover."""
    values = torch.linalg.eigvalsh(similarity).flip(0).clamp(min=0)
    return values.cumsum(0) / values.sum()


def _rounded(matrix: Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in matrix.tolist()]
