"""Activation patching between two texts, as a heat map over layer and token."""

from __future__ import annotations

import torch
from torch import Tensor

from ....core.spec import brief
from ....look.analysis.patching import Metric, activation_patching
from ....look.view.labels import token_labels
from ....look.view.panels import Panel, heat_panel
from ....nn.models.transformer import TransformerModel
from ..loaded import LoadedModel
from ..uses import kind_of
from .passes import forward_pass


def patching_panel(run: LoadedModel, text: str, other: str, target: str | None = None) -> Panel:
    """Return where what tells `text` from `other` is: `other` is read with one activation of `text` in its place, for every
    layer and token, and the shade is the share of the output's log-likelihood that this restores.

    The output is that of `text`: an encoder–decoder's (or `target`), or the likeliest next token of a language model.

    Raises ValueError for a model that is neither, for texts with different numbers of tokens, and for texts that give the
    output the same likelihood.
    """
    passing = forward_pass(run, text, target=target)
    takes = passing.inputs is not None and len(passing.inputs[0]) > 0 and passing.logits is not None
    if not takes or not isinstance(run.model, TransformerModel):
        what = kind_of(run) if isinstance(run.model, TransformerModel) else "a recurrent model"
        raise ValueError(
            f"activations are patched in Transformers that are language models or translators, and {run.name} is {what}"
        )
    assert passing.inputs is not None
    model, (arguments, options) = run.model, passing.inputs
    ids = run.encode(other)
    if len(ids) != arguments[0].shape[1]:
        count = arguments[0].shape[1]
        raise ValueError(
            f"patching puts a token of one text in the place of that of another; {brief(text)} has {count} tokens and "
            f"{brief(other)} {len(ids)}, so choose texts with equally many"
        )
    if ids == arguments[0][0].tolist():
        raise ValueError(
            f"{brief(text)} and {brief(other)} have the same tokens, so nothing tells them apart; choose another text"
        )
    corrupted = (torch.tensor([ids], device=model.device), *arguments[1:])
    if "layout" in options:
        raise ValueError(
            f"activations are patched between texts that are read from left to right, and {run.name} reads a prompt in both "
            "directions"
        )
    if options or any(not isinstance(one, Tensor) for one in arguments):
        raise ValueError(f"activations are patched between plain texts, and {run.name} reads more than their tokens")
    crosses = model.is_encoder_decoder
    stack = "encoder" if crosses or model.decoder is None else "decoder"
    metric = _written(passing.sequences["decoder"].next) if crosses else _next(model, arguments)
    result = activation_patching(model, list(arguments), list(corrupted), metric, f"{stack}.layers.*.output")
    reader = run.reader
    pairs = zip(token_labels(reader, arguments[0][0].tolist()), token_labels(reader, ids), strict=True)
    return heat_panel(
        "Activation patching",
        rows=[f"layer {i}" for i in range(len(result.names))],
        columns=[one if one == two else f"{one} | {two}" for one, two in pairs],
        values=result.effect.tolist(),
        diverging=True,
        note=f"{brief(other)} is read with the state of one layer and token taken from {brief(text)}. 1 restores "
        "the log-likelihood "
        f"of the output ({result.clean:.3f} nats) from that after the other text ({result.corrupted:.3f}); 0 is no change.",
    )


def _written(tokens: tuple[int, ...]) -> Metric:
    """The mean log-likelihood of an output."""

    def metric(logits: Tensor) -> Tensor:
        ids = torch.tensor(tokens, device=logits.device)
        return logits.float().log_softmax(-1)[:, torch.arange(len(ids)), ids].mean(1)

    return metric


@torch.no_grad()
def _next(model: TransformerModel, arguments: tuple[Tensor, ...]) -> Metric:
    """The log-likelihood of the next token that the model finds the likeliest."""
    answer = int(model(*arguments)[0, -1].argmax())
    return lambda logits: logits[:, -1].float().log_softmax(-1)[:, answer]
