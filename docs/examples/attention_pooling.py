"""Attention pooling over plain keys and values: a table that is looked up by likeness.

    out(q) = Σ_i w_i v_i,   w = softmax_i(score(q, k_i))

With the score `exact-match` it is a dictionary's lookup; with the Gaussian kernel it is Nadaraya's and Watson's regression
(1964); with dot products of learned vectors it is a Transformer's attention. Run it with
`python docs/examples/attention_pooling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from qkv import Gaussian, Score, attend
from qkv.nn.attention.scores import ScoreModule


def pool(
    queries: Float[Tensor, "*B T D"],
    keys: Float[Tensor, "*B S C"],
    values: Float[Tensor, "*B S E"],
    score: Score | ScoreModule | Mapping[str, Any] | str = "scaled-dot",
    *,
    mask: Bool[Tensor, "*B T S"] | None = None,
) -> Tensor:
    """For every query the mean of the values, weighed by how well their keys fit it.

    queries: (T, D), or (D,) for a single one. keys: (S, C), C = D unless the score compares unequal widths. values: (S, E),
             or (S,) numbers. All may be batches of these, (B, …).
    score:   a `Score`, its name or JSON form; or its module, where it has parameters: `Additive(d_a=8).scorer(2, 3)`.
    mask:    (T, S), True where a query may see a key.

    Returns (T, E), without the axes that queries or values came without. A query that fits nothing gets 0. Raises ValueError
    for shapes that don't meet, and for a score with parameters that come from nowhere.
    """
    q, k, v = _axes(queries, keys, values)
    scorer = _scorer(score, q.shape[-1], k.shape[-1])
    if not (q.is_floating_point() and k.is_floating_point()):
        q, k = q.to(torch.get_default_dtype()), k.to(torch.get_default_dtype())
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    q, k, v = (x.to(dtype).unsqueeze(2) for x in (q, k, v))
    out = attend(
        scorer.queries(q),
        scorer.keys(k),
        v,
        bias=None if mask is None else _bias(mask, dtype),
        scale=scorer.scale,
        score=scorer.comparison(),
        backend="reference",
    ).squeeze(2)
    out = out.squeeze(-1) if values.ndim < keys.ndim else out
    out = out.squeeze(1) if queries.ndim < keys.ndim else out
    return out if keys.ndim == 3 else out.squeeze(0)


def _axes(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All of them as (B, length, width)."""
    if keys.ndim not in (2, 3) or values.ndim not in (keys.ndim - 1, keys.ndim):
        raise ValueError(
            f"keys are (S, C) and values (S, E) or (S,), or batches of these, not {tuple(keys.shape)} and "
            f"{tuple(values.shape)}"
        )
    if queries.ndim not in (keys.ndim - 1, keys.ndim):
        raise ValueError(f"queries are (T, D) or (D,) beside keys {tuple(keys.shape)}, not {tuple(queries.shape)}")
    if keys.shape[: keys.ndim - 1] != values.shape[: keys.ndim - 1]:
        raise ValueError(
            f"every key has a value: there are {tuple(keys.shape[:-1])} keys, values {tuple(values.shape)}"
        )
    v = values.unsqueeze(-1) if values.ndim < keys.ndim else values
    q = queries.unsqueeze(-2) if queries.ndim < keys.ndim else queries
    if keys.ndim == 2:
        q, keys, v = q.unsqueeze(0), keys.unsqueeze(0), v.unsqueeze(0)
    return q, keys, v


def _scorer(score: Score | ScoreModule | Mapping[str, Any] | str, d_query: int, d_key: int) -> ScoreModule:
    if isinstance(score, ScoreModule):
        return score
    spec = score if isinstance(score, Score) else Score.from_dict({"kind": score} if isinstance(score, str) else score)
    made = spec.module(d_query, d_key)
    if next(made.parameters(), None) is not None and not isinstance(spec, Gaussian):
        raise ValueError(
            f"the score {spec.kind!r} has parameters; give its module, {type(spec).__name__}().scorer({d_query}, {d_key}), "
            "which can be trained"
        )
    return made


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    hidden = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))
    return hidden[:, None] if mask.ndim == 3 else hidden


class KernelRegression(nn.Module):
    """Regression by a Gaussian kernel over known points, its width learned (Nadaraya 1964; Watson 1964).

        ŷ(x) = Σ_i K((x − x_i)/σ) y_i / Σ_i K((x − x_i)/σ),   K(u) = exp(−‖u‖²/2)

    It is `pool` with the score `gaussian`, keys x_i and values y_i. keys (S, D), values (S, E) or (S,). `sigma` is by
    default the mean distance of a point to the nearest other one: from a width that is too large, errors lead nowhere.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Float[Tensor, "S D"], values: Float[Tensor, "S E"], sigma: float | None = None) -> None:
        super().__init__()
        _axes(keys, keys, values)
        if len(keys) < 2:
            raise ValueError("a regression is over points that predict one another; give at least two")
        if sigma is None:
            sigma = max(float(torch.cdist(keys, keys).fill_diagonal_(torch.inf).amin(1).mean()), 1e-6)
        self.register_buffer("keys", keys)
        self.register_buffer("values", values)
        self.score = Gaussian(sigma=sigma, learned=True).scorer(keys.shape[-1])

    @property
    def sigma(self) -> float:
        """The kernel's width σ."""
        return float(self.score.log_sigma.detach().exp())  # type: ignore[operator]

    def forward(self, queries: Float[Tensor, "T D"]) -> Tensor:
        return pool(queries, self.keys, self.values, self.score)

    def fit(self, steps: int = 200, lr: float = 0.05) -> float:
        """Learn σ by the error at every known point, as the others predict it; returns the mean squared error it ends with.

        The point itself is left out: with it, the best width would be 0.
        """
        others = ~torch.eye(len(self.keys), dtype=torch.bool, device=self.keys.device)
        optimizer = torch.optim.Adam(self.score.parameters(), lr=lr)
        for _ in range(steps):
            optimizer.zero_grad()
            self._left_out(others).backward()  # type: ignore[no-untyped-call]  # PyTorch has no types for it
            optimizer.step()
        with torch.no_grad():
            return float(self._left_out(others))

    def _left_out(self, others: Tensor) -> Tensor:
        found = pool(self.keys, self.keys, self.values, self.score, mask=others)
        return (found - self.values).square().mean()


def main() -> None:
    keys, values = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), torch.tensor([4.0, 6.0, 6.0])
    query = torch.tensor([0.5, 0.0])
    for score in (Gaussian(sigma=1.0), "dot"):
        print(round(float(pool(query, keys, values, score)), 4))
    print(float(pool(keys[1], keys, values, "exact-match")))

    x = torch.linspace(0, 6, 60)[:, None]
    regression = KernelRegression(x, torch.sin(2 * x[:, 0]))
    print(regression.fit() < 0.01, regression(torch.tensor([[0.8]])).shape)


if __name__ == "__main__":
    main()
