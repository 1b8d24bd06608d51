"""A backward pass of attention: the gradients of queries, keys and values by hand, and by autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ....nn.activations.record import record
from ....nn.attention.attend import attend
from ....nn.models.heads.language_model import LanguageModelHead
from ..explanation import Explanation
from ..steps import Step, Values, listing, matrix, number
from ..subject import Attended, Subject, attended

TITLE = "Backpropagation through attention"
Q, K, V = [[1.0, 0.0], [2.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]], [[3.0, 6.0], [7.0, 12.0]]
GRADIENT = [[1.0, 0.0], [0.0, 1.0]]
_ROUNDING = 1e-12  # gradients smaller than this, relative to the terms whose difference they are, are 0


def example() -> Explanation:
    a = attended(Q, K, V, ("q1", "q2"), ("k1", "k2"), scale=1.0)
    about = "Two queries and two keys of width 2, unscaled. The gradient that arrives at the output is given."
    return Explanation("backprop", TITLE, about, _steps(a, torch.tensor(GRADIENT)))


def of(subject: Subject) -> Explanation:
    where = subject.stacks[0]
    a = subject.attention(where)
    r = a.request
    if r.score is not None or r.weighting is not None or r.softcap is not None or r.sinks is not None:
        raise ValueError(
            f"layer {a.layer} of {subject.name} has its own scores or weights, not a soft-max of scaled dot products"
        )
    gradient, loss = _gradient(subject, a, where)
    about = f"{subject.about} {where.capitalize()}, layer {a.layer}, head {a.head}. The loss is {loss}."
    return Explanation("backprop", TITLE, about, _steps(a, gradient))


def _gradient(subject: Subject, a: Attended, where: str) -> tuple[Tensor, str]:
    """The gradient of a loss with respect to the head's output (T, E), and what the loss is."""
    name = f"{where}.layers.{a.layer}.attention.heads"
    with torch.enable_grad(), record(subject.model, [name]) as activations:
        out = subject.model(*subject.inputs)
        tokens = subject.inputs[-1][0]
        if (
            isinstance(getattr(subject.model, "head", None), LanguageModelHead)
            and out.ndim == 3
            and out.shape[1] == len(tokens) > 1
        ):
            loss, words = F.cross_entropy(out[0, :-1].float(), tokens[1:]), "the mean cross-entropy of each next token"
        else:
            loss, words = out.float().square().sum() / 2, "half the sum of the squared outputs"
        heads = activations[name]
        (gradient,) = torch.autograd.grad(loss, heads)
    per_head = gradient[0] if gradient.ndim == 4 else gradient[0].unflatten(-1, (a.request.n_heads, -1))
    return per_head[:, a.head].detach().float(), f"{words}, {number(float(loss.detach()))}"


def _exact(weights: Tensor) -> Tensor:
    """Weights in fp64 whose rows add up to 1 as exactly, so rounding in fp32 is no gradient."""
    sums = weights.double().sum(-1, keepdim=True)
    return weights.double() / sums.where((sums - 1).abs() < 1e-4, 1.0)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b, with 0 for sums that are 0 but for rounding."""
    return _rounded(a @ b, a.abs() @ b.abs())


def _rounded(values: Tensor, terms: Tensor) -> Tensor:
    """0 in place of values that are rounding of the terms whose sums they are."""
    return values.where(values.abs() > _ROUNDING * terms.abs().amax(), 0.0)


def _steps(a: Attended, gradient: Tensor) -> tuple[Step, ...]:
    gradient = gradient.double()
    q, k, v, p, scale = a.q.double(), a.k.double(), a.v.double(), _exact(a.weights), a.request.scale
    d_v = _product(p.T, gradient)
    d_p = _product(gradient, v.T)
    row = (p * d_p).sum(-1, keepdim=True)
    d_s = p * (d_p - row)
    d_s = _rounded(d_s, p * d_p)
    d_q, d_k = _product(d_s, k) * scale, _product(d_s.T, q) * scale
    names, keys = a.queries, a.keys
    factor = "" if scale == 1 else f" The scale {number(scale)} is a factor of both."
    by_hand = {"queries": d_q, "keys": d_k, "values": d_v}
    return (
        Step(
            "Forward",
            "Scores, weights P and the output O, as always. P is kept, or computed again, for the backward pass.",
            "P = softmax(S)   O = P V",
            (),
            (
                matrix(p, names, keys, "weights P", True),
                matrix(p @ v, names, caption="output O"),
                matrix(gradient, names, caption="gradient of O, dO"),
            ),
        ),
        Step(
            "Values",
            "The output is linear in the values: each value gets the gradients of the outputs that used it, times "
            "its weight there.",
            "dV = Pᵀ dO",
            (),
            (matrix(d_v, keys, caption="dV"),),
        ),
        Step(
            "Weights",
            "A weight's gradient says how much more of this value would help.",
            "dP = dO Vᵀ",
            (),
            (matrix(d_p, names, keys, "dP"),),
        ),
        Step(
            "Soft-max",
            "Weights of a row share 1, so one grows only if others shrink: the row's mean of dP, weighted by P, is "
            "subtracted. Each row of dS adds up to 0. "
            "A masked pair has P = 0, and no gradient.",
            "dS = P ∘ (dP − Σ P ∘ dP)",
            (),
            (listing(names, {"Σ P ∘ dP": row[:, 0]}, "the mean of each row"), matrix(d_s, names, keys, "dS")),
        ),
        Step(
            "Queries and keys",
            f"The scores are products of queries and keys, so each gets the other, weighted by dS.{factor}",
            "dQ = dS K · scale   dK = dSᵀ Q · scale",
            (),
            (matrix(d_q, names, caption="dQ"), matrix(d_k, keys, caption="dK")),
        ),
        _compared(a, gradient, by_hand),
    )


def _compared(a: Attended, gradient: Tensor, by_hand: dict[str, Tensor]) -> Step:
    automatic = _autograd(a, gradient)
    differences = {name: float((by_hand[name] - automatic[name]).abs().max()) for name in by_hand}
    rows = list(by_hand)
    columns: dict[str, Values] = {
        "largest gradient": [float(by_hand[name].abs().max()) for name in rows],
        "largest difference": [f"{differences[name]:.1e}" for name in rows],
    }
    return Step(
        "The same by autograd",
        "PyTorch's automatic differentiation of `attend` gives the same gradients, up to rounding.",
        "",
        (),
        (listing(rows, columns, "by hand and by autograd"),),
    )


def _autograd(a: Attended, gradient: Tensor) -> dict[str, Tensor]:
    """Gradients of the head's queries, keys and values by autograd."""
    inputs = [x.double()[None, :, None].requires_grad_() for x in (a.q, a.k, a.v)]
    bias = torch.zeros_like(a.scores).masked_fill(a.masked, -torch.inf).double()
    if a.request.bias is not None:
        products = a.q.double() @ a.k.double().T * a.request.scale
        bias = torch.where(a.masked, bias, a.scores.double() - products)
    with torch.enable_grad():
        out = attend(*inputs, bias=bias, scale=a.request.scale)
        gradients = torch.autograd.grad(out, inputs, gradient.double()[None, :, None])
    return dict(zip(("queries", "keys", "values"), (g[0, :, 0] for g in gradients), strict=True))
