"""The steps of attention for one query: inputs, similarities, scaling, soft-max, weighted sum of values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...nn.kernels import reference
from .steps import LabeledTable, Step, dot, listing, matrix, number, numbers
from .subject import Attended

FEW = 6  # keys whose weighted sum is written out


def steps(a: Attended, scaled: str = "scaling") -> list[Step]:
    """All steps for the chosen query."""
    return [inputs(a), similarities(a), weights(a), weighted_sum(a)]


def inputs(a: Attended) -> Step:
    """The query, the keys and the values."""
    d, e = a.k.shape[1], a.v.shape[1]
    name = a.queries[a.token]
    text = (
        f"The query comes from “{name}”, one vector of width {d}. Each of the {len(a.keys)} tokens has a key of the same "
        f"width and a value of width {e}."
    )
    tables = (
        matrix(a.q[a.token], [name], caption="query q"),
        matrix(a.k, a.keys, caption="keys k"),
        matrix(a.v, a.keys, caption="values v"),
    )
    return Step("Query, keys and values", text, tables=tables)


def similarities(a: Attended) -> Step:
    """Scores of the chosen query: the dot product, scaled, with what is added to it or masked."""
    if a.request.score is not None:
        table = listing(a.keys, {"score": a.scores[a.token]}, "scores", by="score")
        return Step("Scores", "The layer compares query and key by its own function.", tables=(table,))
    products = a.k @ a.q[a.token]
    scale, d = a.request.scale, a.k.shape[1]
    columns: dict[str, Sequence[float | None] | Tensor] = {"q · k": products}
    if scale != 1:
        columns["scaled"] = products * scale
    final = a.scores[a.token]
    text = "The dot product of query and key says how well they match."
    if scale != 1:
        root = " = 1/√d" if abs(scale - d**-0.5) < 1e-6 else ""
        text += f" It is multiplied by {number(scale)}{root}: the dot products of long vectors would be large."
    if a.request.softcap is not None:
        text += f" The result is capped at ± {a.request.softcap:g} by tanh."
    if a.request.bias is not None:
        bias = columns["+ bias"] = torch.where(a.masked[a.token], torch.nan, final - products * scale)
        text += " The bias of the positions is added."
        if a.request.softcap is not None:
            del columns["+ bias"]
    hidden = int(a.masked[a.token].sum())
    if hidden:
        text += f" {hidden} of {len(a.keys)} keys are masked: their score is −∞, so their weight is 0."
    if hidden or a.request.bias is not None or a.request.softcap is not None:
        columns["score"] = final
    by = list(columns)[-1]
    equation = "s = q · k" if scale == 1 else "s = q · k / √d" if abs(scale - d**-0.5) < 1e-6 else "s = scale · q · k"
    lines: tuple[str, ...] = ()
    if d <= 4 and len(a.keys) <= FEW:
        lines = tuple(f"{key}: {dot(a.q[a.token], k)}" for key, k in zip(a.keys, a.k, strict=True))
    if "+ bias" in columns:
        columns["+ bias"] = [None if value != value else value for value in bias.tolist()]
    return Step("Similarities", text, equation, lines, (listing(a.keys, columns, "scores of the keys", by),))


def weights(a: Attended) -> Step:
    """The soft-max of the chosen query's scores."""
    w, s = a.weights[a.token], a.scores[a.token]
    if a.request.weighting is not None:
        table = listing(a.keys, {"score": s, "weight": w}, "weights", "weight")
        return Step("Weights", f"The layer turns scores into weights by {a.request.weighting.kind}.", tables=(table,))
    visible = s[~torch.isneginf(s)]
    exponentials = s.exp() if not len(visible) or visible.abs().max() < 20 else (s - s.max()).exp()
    shifted = bool(len(visible)) and bool(visible.abs().max() >= 20)
    name = "exp(s − max)" if shifted else "exp(s)"
    text = "Exponentials make the scores positive, and their sum divides them, so the weights add up to 1."
    if shifted:
        text += " The largest score is subtracted first, which changes nothing but keeps exponentials finite."
    if a.request.sinks is not None:
        text += " A sink beside the keys takes the share that is missing to 1."
    lines = (f"Σ {name} = {numbers(exponentials.sum()[None])[0]}",)
    table = listing(a.keys, {"s": s, name: exponentials, "weight": w}, "weights of the keys", "weight")
    return Step("Soft-max", text, "w = exp(s) / Σ exp(s)", lines, (table,))


def weighted_sum(a: Attended) -> Step:
    """The output: values times weights."""
    w, out = a.weights[a.token], output(a)[a.token]
    lines: tuple[str, ...] = ()
    if len(a.keys) <= FEW:
        lines = tuple(f"out[{i + 1}] = {dot(w, a.v[:, i], FEW)}" for i in range(min(len(out), FEW)))
    tables: list[LabeledTable] = []
    if len(a.keys) > FEW:
        norms = w * a.v.norm(dim=-1)
        tables.append(listing(a.keys, {"weight": w, "weight · ‖v‖": norms}, "what each key brings", "weight"))
    tables.append(matrix(out, [a.queries[a.token]], caption="output"))
    text = "Each value counts as much as the weight of its key. The sum is the output for this query."
    return Step("Weighted sum of the values", text, "out = Σ w v", lines, tuple(tables))


def output(a: Attended) -> torch.Tensor:
    """(T, E) outputs of the head, by the reference implementation of `attend`."""
    from dataclasses import replace

    with torch.no_grad():
        result = reference.run(replace(a.request, dropout=0.0, return_lse=False))
    assert isinstance(result, torch.Tensor)
    out = result[0, :, a.head].float()
    return out if a.request.sinks is None else a.weights @ a.v
