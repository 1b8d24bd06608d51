"""One attention score in steps: products of q and k, position term, mask, soft-max, and the value's share of the output."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...nn.attention import tap
from ...nn.kernels.request import Edits, Request
from ...nn.layers.linear import Linear
from ...nn.layers.low_rank import LowRankLinear, plain
from .attention import LayerAttention
from .rotation import RotationTerm, rotation_of


@dataclass(frozen=True)
class ScoreBreakdown:
    """How one head's weight of one key for one query comes about.

    query_token, key_token: labels of both.
    q, k:       the two vectors (rotary positions applied); empty if the score is not their dot product.
    products:   q_i k_i; their sum is `dot`.
    scale:      factor of `dot`. scaled: scale · dot, or the other comparison's value.
    rotation:   the part of rotary positions in `scaled`; None without them, or without a model.
    softcap:    c of c · tanh(scaled / c); None without.
    position:   the bias that is added for the positions of both tokens (ALiBi, T5); None without one.
    score_edit: what an intervention adds to the score; None without one, and for pairs that it shows or hides.
    score:      scaled, capped, with bias and edit; −∞ (None in JSON) if the mask excludes the pair.
    allowed:    whether the mask allows the pair.
    row_scores, row_weights: scores and weights of the query for all keys; scores are empty if none were recorded.
    weight:     that of this key.
    weight_before: the weight before an intervention on weights; None without one.
    value:      the value vector v of the key.
    norms:      ‖α_j f(v_j)‖ of every key j, with f the part of the output projection that belongs to the head (Kobayashi et
                al. 2020); with `projected` False, f is the identity, because the layer's output projection is not known.
    share:      the norm of this key over the sum of all.
    """

    layer: int
    head: int
    query: int
    key: int
    query_token: str
    key_token: str
    q: list[float]
    k: list[float]
    products: list[float]
    dot: float | None
    scale: float | None
    scaled: float | None
    rotation: RotationTerm | None
    softcap: float | None
    position: float | None
    score_edit: float | None
    score: float
    allowed: bool
    row_scores: list[float]
    row_weights: list[float]
    weight: float
    weight_before: float | None
    value: list[float]
    norms: list[float]
    share: float
    projected: bool

    def to_json(self) -> dict[str, Any]:
        """Return all fields, with None for −∞."""
        fields = asdict(self)
        fields["score"] = self.score if math.isfinite(self.score) else None
        fields["row_scores"] = [score if math.isfinite(score) else None for score in self.row_scores]
        return fields

    def __str__(self) -> str:
        """Several lines, from the vectors to the share of the output."""
        lines = [
            f"layer {self.layer}, head {self.head}: {self.query_token} (token {self.query}) attends to {self.key_token} "
            f"(token {self.key})"
        ]
        if self.products:
            lines += [_products(self)]
            lines += [f"scaled: {self.scale:.6g} · {self.dot:.6g} = {self.scaled:.6g}"]
            lines += [] if self.rotation is None else [str(self.rotation)]
        elif self.scaled is not None:
            lines += [f"comparison of query and key: {self.scaled:.6g}"]
        else:
            lines += ["score: not recorded, the layer computes its weights itself"]
        if self.softcap is not None and self.scaled is not None:
            capped = self.softcap * math.tanh(self.scaled / self.softcap)
            lines += [f"soft cap: {self.softcap:g} · tanh({self.scaled:.6g} / {self.softcap:g}) = {capped:.6g}"]
        if self.position is not None:
            lines += [f"position term: {self.position:+.6g}"]
        if self.score_edit is not None:
            lines += [f"intervention on the score: {self.score_edit:+.6g}"]
        if not self.allowed:
            lines += ["mask: the pair is excluded, so its weight is 0"]
        elif self.scaled is not None:
            lines += [f"mask: the pair is allowed; score {self.score:.6g}"]
        keys = sum(map(math.isfinite, self.row_scores)) if self.row_scores else len(self.row_weights)
        lines += [f"weight, by the soft-max over {keys} keys: {self.weight:.6f}"]
        if self.weight_before is not None:
            lines += [f"intervention on the weight: {self.weight_before:.6f} before"]
        length = math.sqrt(sum(v * v for v in self.value))
        through = "through the output projection" if self.projected else "without the output projection"
        lines += [f"value: length {length:.6g}; {100 * self.share:.2f}% of the head's output by norm, {through}"]
        return "\n".join(lines)


def _products(one: ScoreBreakdown, most: int = 8) -> str:
    """Return the largest products and the sum of the others."""
    order = sorted(range(len(one.products)), key=lambda i: -abs(one.products[i]))[:most]
    shown = "  ".join(f"[{i}] {one.q[i]:.3f}·{one.k[i]:.3f}={one.products[i]:+.3f}" for i in sorted(order))
    rest = sum(one.products) - sum(one.products[i] for i in order)
    others = len(one.products) - len(order)
    return f"q·k: {shown}" + (f"  and {others} others {rest:+.3f}" if others else "") + f"  = {one.dot:.6g}"


def score_breakdown(
    layer: LayerAttention, head: int, query: int, key: int, tokens: tuple[str, str], model: nn.Module | None = None
) -> ScoreBreakdown:
    """Break down the weight of token `key` for token `query`, with `tokens` as their labels.

    Raises ValueError for indices out of range, and for weights that come from several layers.
    """
    request = layer.request
    if request is None:
        raise ValueError(f"{layer.name} multiplies the weights of layers and has no scores; choose a layer")
    _check(request, head, query, key)
    small, _ = tap.part(request, [head], [query])
    weights = tap.weights(request, [head], [query])[0, 0, 0].double().cpu()
    q, k, v = (t[0].detach().double().cpu() for t in (small.q[:, 0, 0], small.k[:, key, 0], small.v[:, :, 0]))
    plain = request.score is None and request.known_weights is None
    norms, projected = value_norms(layer, head, weights, v, model)
    row = None if request.known_weights is not None else tap.scores(request, [head], [query])[0, 0, 0].double().cpu()
    bias = small.dense_bias()
    keep = tap.allowed(request, [head], [query])
    if row is not None and keep is not None:
        row = row.masked_fill(~keep.expand(len(keep), 1, 1, len(row))[0, 0, 0].cpu(), float("-inf"))
    rotation = rotation_of(model, request) if plain else None
    products = q * k if plain else q.new_zeros(0)
    dot = float(products.sum()) if plain else None
    scaled = None if dot is None else dot * request.scale
    if request.score is not None:
        assert small.score is not None
        scaled = float(small.score(small.q.transpose(1, 2), small.k.transpose(1, 2))[0, 0, 0, key])
    total = float(norms.sum())
    return ScoreBreakdown(
        layer=layer.index,
        head=head,
        query=query,
        key=key,
        query_token=tokens[0],
        key_token=tokens[1],
        q=q.tolist() if plain else [],
        k=k.tolist() if plain else [],
        products=products.tolist(),
        dot=dot,
        scale=request.scale if plain else None,
        scaled=scaled,
        rotation=None if rotation is None else rotation.term(q, k, query, key, request.scale),
        softcap=request.softcap,
        position=None if bias is None else float(bias.expand(len(bias), 1, 1, len(weights))[0, 0, 0, key]),
        score_edit=_score_edit(request, head, query, key),
        score=float("nan") if row is None else float(row[key]),
        allowed=keep is None or bool(keep.expand(len(keep), 1, 1, len(weights))[0, 0, 0, key]),
        row_scores=[] if row is None else row.tolist(),
        row_weights=weights.tolist(),
        weight=float(weights[key]),
        weight_before=_weight_before(request, head, query, key),
        value=v[key].tolist(),
        norms=norms.tolist(),
        share=float(norms[key]) / total if total else 0.0,
        projected=projected,
    )


def _score_edit(request: Request, head: int, query: int, key: int) -> float | None:
    """What edits of scores add to one of them; None without edits, and if the pair is masked before or after."""
    if all(one.scores is None for one in request.edits):
        return None
    edited, plain = (
        tap.scores(one, [head], [query])[0, 0, 0, key] for one in (request, without_edits(request, "scores"))
    )
    lowest = torch.finfo(edited.dtype).min
    return None if float(edited) == lowest or float(plain) == lowest else float(edited.double() - plain.double())


def _weight_before(request: Request, head: int, query: int, key: int) -> float | None:
    """The weight without edits of weights; None if there are none."""
    if all(one.weights is None for one in request.edits):
        return None
    return float(tap.weights(without_edits(request, "weights"), [head], [query])[0, 0, 0, key])


def without_edits(request: Request, what: Literal["scores", "weights"]) -> Request:
    """The request without edits of scores, or of weights."""
    kept = (Edits(weights=one.weights) if what == "scores" else Edits(scores=one.scores) for one in request.edits)
    return replace(request, edits=tuple(kept))


def value_norms(
    layer: LayerAttention,
    head: int,
    weights: Float[Tensor, " S"],
    values: Float[Tensor, "S E"],
    model: nn.Module | None,
) -> tuple[Float[Tensor, " S"], bool]:
    """Return ‖α_j f(v_j)‖ for every key j, and whether f is the head's part of the output projection or the identity."""
    matrix = output_matrix(model, layer.name, head, values.shape[-1])
    outputs = values if matrix is None else values @ matrix.T
    return weights * outputs.norm(dim=-1), matrix is not None


def output_matrix(model: nn.Module | None, name: str, head: int, width: int) -> Float[Tensor, "M E"] | None:
    """Return the columns of a layer's output projection that belong to a head; None if the layer has none to find."""
    module = dict(model.named_modules()).get(name) if model is not None else None
    out, heads = getattr(module, "out", None), getattr(module, "n_heads", 0)
    weight = getattr(plain(out) if isinstance(out, Linear | LowRankLinear) else out, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.shape[1] != heads * width:
        return None
    return weight.detach()[:, head * width : (head + 1) * width].double().cpu()


def _check(request: Request, head: int, query: int, key: int) -> None:
    for what, index, count in (
        ("head", head, request.n_heads),
        ("query", query, request.q.shape[1]),
        ("key", key, request.k.shape[1]),
    ):
        if not 0 <= index < count:
            raise ValueError(f"there is no {what} {index}; this layer's are 0 to {count - 1}")
