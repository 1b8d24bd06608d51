"""Logit lens: what each layer would predict if it were the last (nostalgebraist 2020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...core.several import worded
from ...nn.activations import record
from ...nn.attention.own_calls import hooked
from ...nn.models.transformer import TransformerModel


@dataclass(frozen=True, eq=False)
class LayerPrediction:
    """What one layer predicts at some positions of a batch.

    name:          of the activation: `decoder.embedding`, then the `output` of each layer.
    top:           ids of the likeliest tokens (or classes), and their probabilities.
    entropy:       of the prediction, in nats.
    divergence:    KL(final ‖ this), in nats: 0 for the last layer.
    final:         probability that this layer gives to the final prediction, and its rank there, from 0.
    """

    name: str
    top: Int[Tensor, "B P k"]
    probabilities: Float[Tensor, "B P k"]
    entropy: Float[Tensor, "B P"]
    divergence: Float[Tensor, "B P"]
    final: Float[Tensor, "B P"]
    rank: Int[Tensor, "B P"]


@torch.no_grad()
@worded
def logit_lens(
    model: nn.Module, *args: object, top_k: int = 5, positions: Sequence[int] | None = None, **inputs: object
) -> list[LayerPrediction]:
    """Run `model(*args, **inputs)`, and apply the last norm and the head to the residual stream after every layer.

    The stack is the one that the head reads: the decoder, or the encoder if there is no decoder. `positions` are the
    positions of its tokens, by default all. A head that labels whole sequences has a single position. Only the logits of one
    layer are in memory at a time. The model runs in evaluation mode; its mode is restored. Raises
    ValueError for a model without a head, or one that is no Transformer.
    """
    if not isinstance(model, TransformerModel) or model.head is None:
        raise ValueError(
            f"the logit lens applies the head of a Transformer to each of its layers, and this {type(model).__name__} has "
            "none"
        )
    head: Callable[..., Tensor] = model.head
    stack = "decoder" if model.decoder is not None else "encoder"
    module = model.decoder if model.decoder is not None else model.encoder
    assert module is not None
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    heads = [(model.head, lambda _, a, kw: calls.append((a[1:], kw)))]
    training = model.training
    model.eval()
    try:
        names = [f"{stack}.embedding", f"{stack}.layers.*.output"]
        with record(model, names) as at, hooked(heads, before=True, with_kwargs=True):
            model(*args, **inputs)
        more, kwargs = calls[-1]

        def logits(x: Tensor) -> Tensor:
            x = module.placement.leave(x) if x.ndim == 4 else x
            if positions is not None and not kwargs and not more:
                x = x[:, list(positions)]
            out = head(module.norm(x), *more, **kwargs)
            if not isinstance(out, Tensor) or not out.is_floating_point():
                raise ValueError(f"the logit lens needs a head of logits, and {type(model.head).__name__} returns none")
            return (out[:, None] if out.ndim == 2 else out).float().log_softmax(-1)

        names = [name for name in at if name != f"{stack}.embedding"]
        last = logits(at[names[-1]])
        return [_prediction(name, logits(at[name]), last, top_k) for name in [f"{stack}.embedding", *names]]
    finally:
        model.train(training)


def _prediction(name: str, logs: Float[Tensor, "B P V"], last: Float[Tensor, "B P V"], top_k: int) -> LayerPrediction:
    top = logs.topk(min(top_k, logs.shape[-1]), -1)
    answer = last.argmax(-1, keepdim=True)
    own = logs.gather(-1, answer)
    probabilities, final = logs.exp(), last.exp()
    return LayerPrediction(
        name,
        top.indices,
        top.values.exp(),
        -(probabilities * logs.clamp(min=-1e4)).sum(-1),
        (final * (last - logs).nan_to_num(0.0)).sum(-1).clamp(min=0.0),
        own[..., 0].exp(),
        (logs > own).sum(-1),
    )
