"""Panels of a page from the analysis of activations: logit lens and scores of heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from ...nn.kernels.request import Request
from ..analysis.head_scores import scores_of
from ..analysis.logit_lens import logit_lens
from .panels import Panel, heat_panel, table_panel

MOST_TOKENS = 512  # of a sequence whose heads are scored, which takes the weights of all pairs


def lens_panel(
    model: nn.Module,
    inputs: tuple[Sequence[Any], Mapping[str, Any]],
    tokens: Sequence[str],
    shown: Sequence[int],
    label: Callable[[int], str],
) -> Panel:
    """Return what each layer would predict at the tokens on display if it were the last.

    `inputs` are the arguments of the model, and `label` names a predicted token.
    """
    arguments, options = inputs
    layers = logit_lens(model, *arguments, top_k=1, positions=shown, **options)
    return heat_panel(
        "Logit lens",
        rows=[_layer_label(layer.name) for layer in layers],
        columns=tokens,
        values=[layer.probabilities[0, :, 0].tolist() for layer in layers],
        texts=[[label(i) for i in layer.top[0, :, 0].tolist()] for layer in layers],
        note="The likeliest token if the last norm and the head followed each layer directly; the shade is its probability.",
    )


def head_scores_panel(
    requests: Sequence[Request], induction: Mapping[tuple[str, int], float] | None = None
) -> Panel | None:
    """Return a table of what each head looks at on average; None for long sequences, and without attention."""
    if not requests or max(request.q.shape[1] for request in requests) > MOST_TOKENS:
        return None
    measured = induction or {}
    rows: list[list[str | float]] = []
    for one in scores_of(requests):
        values = (one.entropy, one.distance, one.previous, one.itself, one.sink)
        cells: list[str | float] = ["–" if value is None else round(value, 4) for value in values]
        if measured:
            cells.append(round(measured.get((one.name, one.head), float("nan")), 4))
        rows.append([one.name, str(one.head), *cells])
    columns = ["layer", "head", "entropy (nats)", "mean distance", "previous token", "own token", "first token"]
    return table_panel(
        "Scores of heads",
        columns=[*columns, *(["induction"] if measured else [])],
        rows=rows,
        note="Averages over the queries of this input: entropy and distance of the weights, and shares of weight. "
        + ("Induction is measured on random tokens that are repeated (Olsson et al. 2022). " if measured else "")
        + "Click a title to sort.",
    )


def _layer_label(name: str) -> str:
    """`embedding`, or `layer 3` for `decoder.layers.3.output`."""
    number = next((part for part in name.split(".") if part.isdigit()), None)
    return "embedding" if number is None else f"layer {number}"
