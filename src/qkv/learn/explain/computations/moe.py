"""A mixture of experts: the router's scores, the top experts of each token, their gates, and the load."""

from __future__ import annotations

import torch
from torch import Tensor

from ....nn.attention.own_calls import hooked
from ....nn.layers.moe import Mixture, MixtureOfExperts
from ....nn.layers.moe_dispatch import dispatch
from .. import toy
from ..explanation import Explanation
from ..steps import LabeledTable, Step, dot, listing, matrix, number
from ..subject import Subject

TITLE = "Mixture of experts: each token uses a few feed-forward layers"
TOKENS = ("the", "cat", "sat", "on", "the", "mat")
INPUT = [
    [1.0, 0.0, 0.5, 0.0],
    [0.0, 1.0, 0.0, 0.5],
    [-1.0, 0.5, 0.0, 1.0],
    [0.5, 0.0, -1.0, 0.0],
    [1.0, 0.0, 0.5, 0.0],
    [0.0, 0.5, 1.0, -0.5],
]
EXPERTS = 4


def example() -> Explanation:
    layer = MixtureOfExperts(n_experts=EXPERTS, top_k=2, d_ff=4, gated=False, activation="relu").module(4)
    assert isinstance(layer, Mixture)
    toy.round_weights(layer)
    about = f"Six tokens of width 4 and {EXPERTS} experts, of which each token uses two. Round weights."
    return Explanation("moe", TITLE, about, _steps(layer, torch.tensor(INPUT), TOKENS, 1))


def of(subject: Subject) -> Explanation:
    layers = [(name, module) for name, module in subject.model.named_modules() if isinstance(module, Mixture)]
    index = subject.choose("layer", subject.layer, len(layers), 0)
    name, layer = layers[index]
    seen: list[Tensor] = []
    with torch.no_grad(), hooked([(layer, lambda _, inputs, out: seen.append(inputs[0]))]):
        subject.model(*subject.inputs)
    tokens = subject.target_tokens if subject.target and name.startswith("decoder") else subject.tokens
    at = subject.choose("token", subject.token, len(tokens), len(tokens) - 1)
    about = (
        f"{subject.about} Mixture {index} of {len(layers)}, {name}: {layer.spec.n_experts} experts, "
        f"{layer.spec.top_k} for each token."
    )
    return Explanation("moe", TITLE, about, _steps(layer, seen[-1][0], tokens, at))


@torch.no_grad()
def _steps(layer: Mixture, x: Tensor, tokens: tuple[str, ...], at: int) -> tuple[Step, ...]:
    spec = layer.spec
    routed = layer.router(x)
    stats = layer.record(routed, dispatch(routed.experts, spec.n_experts), None)
    names = [f"expert {e}" for e in range(spec.n_experts)]
    word, chosen = tokens[at], routed.experts[at].tolist()
    load = {
        "choices": stats.load,
        "f: share of choices" if spec.balance != "mixtral" else "f: share of tokens": stats.f,
        "P: mean probability": stats.p,
    }
    balance = float(spec.n_experts * (stats.f * stats.p).sum())
    even = spec.top_k if spec.balance == "mixtral" else 1
    gates = _gates(spec)
    return (
        Step(
            "Scores of the router",
            f"The router is one matrix: a token's vector times one row for each of {spec.n_experts} experts.",
            "s = W_r x",
            (),
            (matrix(routed.scores, tokens, names, "scores by token and expert", around=at),),
        ),
        Step(
            "Probabilities",
            {"sigmoid": "A sigmoid of each score; each row is divided by its sum here."}.get(
                spec.score, "A soft-max over the experts."
            ),
            "p = softmax(s)" if spec.score != "sigmoid" else "sigmoid(s)",
            (),
            (matrix(routed.probabilities, tokens, names, "probabilities", True, around=at),),
        ),
        Step(
            f"The {spec.top_k} best experts",
            f"Each token goes to the {spec.top_k} experts with the largest values only. {gates}",
            "",
            (),
            (_choices(routed.experts, routed.gates, tokens, at),),
        ),
        _output(layer, x[at], word, chosen, routed.gates[at]),
        Step(
            "Load",
            "How often each expert was chosen. Training adds a term that is smallest when all are chosen equally "
            "often, or a few experts would "
            f"take all tokens. It is {even} for an even load.",
            "balance = experts · Σ f P",
            (f"balance = {number(balance)}",),
            (listing(names, load, "load of the experts"),),
        ),
        _active(layer, spec, x.shape[1]),
    )


def _gates(spec: MixtureOfExperts) -> str:
    renormalized = spec.top_k > 1 if spec.renormalize is None else spec.renormalize
    if spec.score == "top-k-softmax":
        return "Their gates are a soft-max over their scores alone."
    return (
        "Their gates are divided by their sum, so they add up to 1."
        if renormalized
        else "Their gates are their values as they are."
    )


def _choices(experts: Tensor, gates: Tensor, tokens: tuple[str, ...], at: int) -> LabeledTable:
    columns: dict[str, list[str] | Tensor] = {}
    for i in range(experts.shape[1]):
        columns[f"choice {i + 1}"] = [f"expert {e}" for e in experts[:, i].tolist()]
        columns[f"gate {i + 1}"] = gates[:, i]
    return listing(tokens, columns, "choices of each token")


def _output(layer: Mixture, x: Tensor, word: str, chosen: list[int], gates: Tensor) -> Step:
    """What each chosen expert returns for one token, and their sum."""
    count = layer.spec.n_experts
    outputs = torch.stack([layer.experts(x[None], (torch.arange(count) >= e).long())[0] for e in chosen]).float()
    total = layer(x[None, None])[0, 0].float()
    rows, values = [f"expert {e}" for e in chosen], [*outputs]
    if layer.shared is not None:
        own = layer.add_shared(x[None], torch.zeros_like(x)[None])[0].float()
        rows, values = [*rows, "shared"], [*values, own]
    lines: tuple[str, ...] = ()
    if layer.shared is None:
        lines = (f"y[1] = {dot(gates, outputs[:, 0], 8)}",)
    tables = (
        matrix(torch.stack(values), rows, caption=f"outputs of the experts for “{word}”"),
        matrix(total, [word], caption="output y"),
    )
    return Step(
        f"The output for “{word}”",
        "Only the chosen experts are computed. Their outputs are added, weighted by the gates."
        + (" A shared layer is added for every token." if layer.shared is not None else ""),
        "y = Σ g expert(x)",
        lines,
        tables,
    )


def _active(layer: Mixture, spec: MixtureOfExperts, d_model: int) -> Step:
    cost = spec.cost(d_model)
    rows = ["all parameters of the layer", "used for one token"]
    table = listing(rows, {"parameters": [float(cost.parameters), float(cost.parameters - cost.idle)]}, "parameters")
    return Step(
        "Parameters",
        f"A token uses {spec.top_k} of {spec.n_experts} experts, and everything else of the model: the share of "
        f"{spec.top_k}/{spec.n_experts} is that of the experts' parameters, not of all.",
        "",
        (),
        (table,),
    )
