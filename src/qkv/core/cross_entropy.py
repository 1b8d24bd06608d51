"""The language-model loss: a linear map to the vocabulary and cross-entropy in one, without the matrix of logits."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from .batch import IGNORE

CHUNK_BYTES = 1 << 23  # of logits held at a time …
CHUNK_ROWS = 512  # … but no fewer rows: each chunk passes over the whole gradient of the weight


class LossSums(NamedTuple):
    """Sums over the labels that count: the (smoothed) loss to minimize, and the plain negative log-likelihood, detached."""

    loss: Tensor
    nll: Tensor
    n_labels: Tensor


def _check(outputs: Tensor, labels: Tensor, label_smoothing: float) -> None:
    if labels.shape != outputs.shape[:-1]:
        raise ValueError(
            f"labels are {tuple(labels.shape)} and outputs {tuple(outputs.shape[:-1])}: there has to be one for each output"
        )
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"label_smoothing is a share in [0, 1), not {label_smoothing}")


def cross_entropy(logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], label_smoothing: float = 0.0) -> LossSums:
    """Plain cross-entropy from whole logits, in fp32: (1 − ε) · nll + ε · mean over the vocabulary of −log p."""
    _check(logits, labels, label_smoothing)
    flat, labels = logits.flatten(0, -2), labels.flatten()
    flat = flat if flat.dtype == torch.float64 else flat.float()
    loss = F.cross_entropy(flat, labels, ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing)
    with torch.no_grad():
        nll = F.cross_entropy(flat, labels, ignore_index=IGNORE, reduction="sum") if label_smoothing else loss.detach()
    return LossSums(loss, nll, (labels != IGNORE).sum())


def linear_cross_entropy(
    hidden: Float[Tensor, "B T M"],
    weight: Float[Tensor, "V M"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, "B T"],
    label_smoothing: float = 0.0,
) -> LossSums:
    """`cross_entropy(hidden @ weightᵀ + bias, labels)`, exact, with gradients, holding a few rows of logits at a time.

    The gradients with respect to hidden states, weight and bias are made in the forward pass, where each chunk of logits
    exists anyway, and only scaled in the backward pass. Labels of −100 don't count; their rows are not even computed.
    """
    _check(hidden, labels, label_smoothing)
    rows, flat = hidden.flatten(0, -2), labels.flatten()
    if torch.is_autocast_enabled(rows.device.type):
        rows = rows.to(torch.get_autocast_dtype(rows.device.type))
    needs = torch.is_grad_enabled() and (
        rows.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    )
    loss, nll, *_ = _linear_cross_entropy(rows, weight, bias, flat, label_smoothing, needs)
    return LossSums(loss, nll.detach(), (flat != IGNORE).sum())


@torch.library.custom_op("qkv::linear_cross_entropy", mutates_args=())
def _linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, grads: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    keep = (labels != IGNORE).nonzero().squeeze(-1)
    if len(keep) == len(labels):
        return _sums_and_gradients(hidden, weight, bias, labels, smoothing, grads)
    loss, nll, d_kept, *d_rest = _sums_and_gradients(hidden[keep], weight, bias, labels[keep], smoothing, grads)
    d_hidden = torch.zeros_like(hidden).index_copy_(0, keep, d_kept) if grads else d_kept
    return loss, nll, d_hidden, d_rest[0], d_rest[1]


def _sums_and_gradients(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, grads: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Loss and plain nll, and the gradients of hidden states, weight and bias, chunk by chunk of rows."""
    n, vocab = len(hidden), len(weight)
    matrix = weight.to(hidden.dtype)
    wide = torch.promote_types(hidden.dtype, torch.float32)
    loss, nll = hidden.new_zeros((), dtype=wide), hidden.new_zeros((), dtype=wide)
    d_hidden = torch.empty_like(hidden) if grads else hidden.new_empty(0)
    d_weight = torch.zeros_like(weight) if grads else hidden.new_empty(0)
    d_bias = torch.zeros_like(bias) if grads and bias is not None else hidden.new_empty(0)
    step = max(1, min(n, max(CHUNK_ROWS, CHUNK_BYTES // (4 * vocab))))
    logits = hidden.new_empty(step, vocab)  # used again for every chunk, as is the next
    log_p = hidden.new_empty(step, vocab, dtype=wide)
    for start in range(0, n, step):
        h, target = hidden[start : start + step], labels[start : start + step, None]
        x = torch.mm(h, matrix.T, out=logits[: len(h)])
        x = x if bias is None else x.add_(bias)
        chunk = torch.ops.aten._log_softmax.out(x.to(wide), -1, False, out=log_p[: len(h)])
        chunk_nll = -chunk.gather(1, target).sum()
        nll += chunk_nll
        loss += chunk_nll if not smoothing else (1 - smoothing) * chunk_nll - smoothing * chunk.sum() / vocab
        if grads:
            _chunk_gradients(chunk, target, smoothing, h, matrix, d_hidden[start : start + step], d_weight, d_bias)
    return loss, nll, d_hidden, d_weight, d_bias


def _chunk_gradients(
    log_p: Tensor,
    target: Tensor,
    smoothing: float,
    h: Tensor,
    matrix: Tensor,
    d_hidden: Tensor,
    d_weight: Tensor,
    d_bias: Tensor,
) -> None:
    """d loss / d logits = softmax − (1 − ε) onehot − ε/V, made in place of the log-probabilities, and what follows."""
    d = log_p.exp_()
    d.scatter_add_(1, target, d.new_full((len(target), 1), smoothing - 1.0))
    if smoothing:
        d.sub_(smoothing / d.shape[1])
    if d_bias.numel():
        d_bias.add_(d.sum(0))
    d = d.to(h.dtype)
    torch.mm(d, matrix, out=d_hidden)
    if d_weight.dtype == d.dtype:
        d_weight.addmm_(d.T, h)
    else:
        d_weight.add_(d.T @ h)


@_linear_cross_entropy.register_fake
def _(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, grads: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    scalar = hidden.new_empty((), dtype=torch.promote_types(hidden.dtype, torch.float32))
    nothing = hidden.new_empty(0)
    return (
        scalar,
        scalar.clone(),
        torch.empty_like(hidden) if grads else nothing,
        torch.empty_like(weight) if grads else nothing.clone(),
        torch.empty_like(bias) if grads and bias is not None else nothing.clone(),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.has_bias = inputs[2] is not None
    ctx.save_for_backward(*output[2:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    d_hidden, d_weight, d_bias = ctx.saved_tensors
    if grad is None:
        return None, None, None, None, None, None
    scaled = [d * grad.to(d.dtype) for d in (d_hidden, d_weight)]
    return scaled[0], scaled[1], d_bias * grad.to(d_bias.dtype) if ctx.has_bias else None, None, None, None


_linear_cross_entropy.register_autograd(_gradients, setup_context=_setup)
