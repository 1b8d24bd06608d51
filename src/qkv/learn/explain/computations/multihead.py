"""Multi-head attention: projections, heads side by side, concatenation, output projection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced

import torch
from torch import Tensor

from ....core.layout import Layout
from ....nn.attention import tap
from ....nn.attention.mixer import Pass
from ....nn.attention.multi_head import Attention, MultiHeadAttention
from ....nn.kernels.request import Request
from ....nn.layers.low_rank import plain
from ....nn.positions.base import PositionModule
from .. import one_query, toy
from ..explanation import Explanation
from ..steps import Step, matrix
from ..subject import Attended, Subject

TITLE = "Multi-head attention: several small attentions side by side"
TOKENS = ("the", "river", "bank")
INPUT = [[1.0, 0.0, 0.0, 1.0], [0.0, 2.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]]


@dataclass(frozen=True, eq=False)
class MultiHeadNumbers:
    """What a multi-head layer read, computed and returned for one text."""

    x: Tensor
    request: Request
    out: Tensor
    tokens: Sequence[str]
    token: int


def example() -> Explanation:
    layer = Attention(n_heads=2, bias=False).module(4)
    assert isinstance(layer, MultiHeadAttention)
    toy.round_weights(layer)
    x = torch.tensor([INPUT])
    with torch.no_grad(), tap.record_attention() as requests:
        out = layer(x, Pass.over(Layout.full(len(TOKENS)), PositionModule()))
    about = "Three tokens of width 4 and two heads of width 2, with round weights."
    weights = Step(
        "Projection matrices",
        "A linear layer computes x Wᵀ. The first two rows of each matrix belong to head 0, the others to head 1.",
        tables=tuple(
            matrix(plain(module).weight, ["head 0", "head 0", "head 1", "head 1"], caption=f"W_{name.upper()}")
            for name, module in (("q", layer.q), ("k", layer.k), ("v", layer.v))
        ),
    )
    output = Step(
        "Output matrix",
        "The concatenated heads are multiplied by W_O, which mixes them. It is part of the layer: without it no head "
        "could use what another one found.",
        "out = [head 0; head 1] W_Oᵀ",
        tables=(matrix(plain(layer.out).weight, [str(i + 1) for i in range(4)], caption="W_O"),),
    )
    first, *others, last = _steps(MultiHeadNumbers(x[0], requests[0], out[0], TOKENS, len(TOKENS) - 1))
    return Explanation("multihead", TITLE, about, (first, weights, *others, output, last))


def of(subject: Subject) -> Explanation:
    where = subject.stacks[0]
    a = subject.attention(where)
    prefix = f"{where}.layers.{a.layer}.attention"
    states = subject.record([f"{prefix}.input", prefix])
    x, out = (states[name][0].float() for name in (f"{prefix}.input", prefix))
    about = f"{subject.about} {where.capitalize()}, layer {a.layer}, {a.request.n_heads} heads."
    return Explanation("multihead", TITLE, about, _steps(MultiHeadNumbers(x, a.request, out, a.queries, a.token)))


def _steps(layer: MultiHeadNumbers) -> tuple[Step, ...]:
    r, tokens, at = layer.request, layer.tokens, layer.token
    h, d = r.q.shape[2:]
    heads = [replaced(Attended(r, 0, i, at, tuple(tokens), tuple(tokens))) for i in range(h)]
    names = [f"head {i}" for i in range(h)]
    queries = torch.stack([a.q[at] for a in heads])
    shared = "" if r.n_kv_heads == h else f" {r.n_kv_heads} heads of keys and values serve the {h} heads of queries."
    word = tokens[at]
    outputs = torch.stack([one_query.output(a)[at] for a in heads])
    return (
        Step(
            "Input",
            f"Each token is a vector of width {layer.x.shape[1]}.",
            "",
            (),
            (matrix(layer.x, tokens, caption="x", around=at),),
        ),
        Step(
            "Projections",
            f"Three matrices turn x into queries, keys and values, which are cut into {h} heads of width {d}.{shared}",
            "q = x W_Qᵀ   k = x W_Kᵀ   v = x W_Vᵀ",
            (),
            (
                matrix(queries, names, caption=f"queries of “{word}”"),
                matrix(heads[0].k, tokens, caption="keys of head 0", around=at),
            ),
        ),
        Step(
            "Each head by itself",
            f"A head is a separate attention. Its scores are scaled by the width of the head, √{d}, "
            f"not by that of the model. The weights of “{word}”:",
            "softmax(q · k / √d_head)",
            (),
            (matrix(torch.stack([a.weights[at] for a in heads]), names, tokens, f"weights of “{word}” by head", True),),
        ),
        Step(
            "Outputs of the heads",
            "Each head returns a weighted sum of its own values.",
            "head = Σ w v",
            (),
            (matrix(outputs, names, caption=f"outputs for “{word}”"),),
        ),
        Step(
            "Concatenation",
            f"The {h} outputs of width {outputs.shape[1]} side by side have width {outputs.numel()}, and the "
            "output matrix turns them into the output of the layer.",
            "",
            (),
            (
                matrix(outputs.flatten(), [word], caption="concatenated"),
                matrix(layer.out[at], [word], caption="output of the layer"),
            ),
        ),
    )
