"""Cross-entropy losses, and the language-model loss fused with its linear layer, which never stores all logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from ...core.batch import IGNORE
from ...core.extras import Extra
from ...core.graphs import operator
from ..kernels.plain import in_forward_mode
from ..kernels.products import onednn

CHUNK_BYTES = 1 << 28  # logits of one chunk; each chunk reads and writes the whole gradient of the weight once
CHUNK_ROWS = 256  # rows of a chunk on a CPU, or twice the model's width: more would not fit its caches
CACHE_BYTES = 1 << 20  # logits that a CPU core turns into probabilities at a time, while its cache holds them
ROW_MULTIPLE = 32  # alignment of rows of narrow logits: products that write unaligned rows take a fifth longer


class LossSums(NamedTuple):
    """Sums over the labels other than −100: the (smoothed) loss, and the plain negative log-likelihood, detached.

    `extras` are extra losses of layers by name; they are not sums over labels.
    """

    loss: Tensor
    nll: Tensor
    n_labels: Tensor
    extras: dict[str, Extra] | None = None


def at_least_fp32(x: Tensor) -> Tensor:
    """The tensor in fp32, in which losses are computed, or in float64 if it has that type."""
    return x if x.dtype == torch.float64 else x.float()


def check(outputs: Tensor, labels: Tensor, label_smoothing: float, z_loss: float) -> None:
    """Raise ValueError for arguments that no cross-entropy has."""
    if labels.shape != outputs.shape[:-1]:
        raise ValueError(
            f"labels have shape {tuple(labels.shape)} and outputs {tuple(outputs.shape[:-1])}; give one for each output"
        )
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"label_smoothing has to be in [0, 1), not {label_smoothing}")
    if not 0.0 <= z_loss < float("inf"):
        raise ValueError(f"z_loss has to be finite and at least 0 (usually 1e-4), not {z_loss}")


def cross_entropy(
    logits: Float[Tensor, "B T V"],
    labels: Int[Tensor, "B T"],
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> LossSums:
    """Cross-entropy of logits, in fp32: (1 − ε) · nll + ε · mean over the vocabulary of −log p + ζ · log² Z.

    ζ is `z_loss`, which keeps the soft-max's normalizer log Z = log Σ exp(logits) near 0 (Chowdhery et al. 2022, §5: 1e-4).
    """
    check(logits, labels, label_smoothing, z_loss)
    flat, labels = logits.flatten(0, -2), labels.flatten()
    flat = at_least_fp32(flat)
    loss = F.cross_entropy(flat, labels, ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing)
    if z_loss:
        loss = loss + z_loss * flat[labels != IGNORE].logsumexp(-1).square().sum()
    with torch.no_grad():
        apart = label_smoothing or z_loss
        nll = F.cross_entropy(flat, labels, ignore_index=IGNORE, reduction="sum") if apart else loss.detach()
    return LossSums(loss, nll, (labels != IGNORE).sum())


def linear_cross_entropy(
    hidden: Float[Tensor, "B T M"],
    weight: Float[Tensor, "V M"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, "B T"],
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> LossSums:
    """`cross_entropy(hidden @ weightᵀ + bias, labels)`, exact, with gradients, storing a few rows of logits at a time.

    The gradients of hidden states, weight and bias are computed in the forward pass, where each chunk of logits exists
    anyway, and only scaled in the backward pass. Those that nothing asks for, such as of a frozen weight, are not computed.
    Rows with the label −100 are left out.
    """
    check(hidden, labels, label_smoothing, z_loss)
    if in_forward_mode(hidden, weight, bias):
        return cross_entropy(F.linear(hidden, weight, bias), labels, label_smoothing, z_loss)
    rows, flat = hidden.flatten(0, -2), labels.flatten()
    if torch.is_autocast_enabled(rows.device.type):
        rows = rows.to(torch.get_autocast_dtype(rows.device.type))
    wanted = wants_gradients(rows, weight, bias)
    loss, nll, *_ = _linear_cross_entropy(rows, weight, bias, flat, label_smoothing, z_loss, wanted)
    return LossSums(loss, nll.detach(), (flat != IGNORE).sum())


def wants_gradients(*tensors: Tensor | None) -> list[bool]:
    """Whether the gradient of each tensor is needed."""
    return [x is not None and x.requires_grad and torch.is_grad_enabled() for x in tensors]


@operator("linear_cross_entropy")
def _linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    z_loss: float,
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    keep = (labels != IGNORE).nonzero().squeeze(-1)
    if len(keep) == len(labels):
        return _sums_and_gradients(hidden, weight, bias, labels, smoothing, z_loss, wanted)
    loss, nll, d_kept, d_weight, d_bias = _sums_and_gradients(
        hidden[keep], weight, bias, labels[keep], smoothing, z_loss, wanted
    )
    d_hidden = torch.zeros_like(hidden).index_copy_(0, keep, d_kept) if wanted[0] else d_kept
    return loss, nll, d_hidden, d_weight, d_bias


def _sums_and_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    z_loss: float,
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return loss, plain nll, and the gradients of hidden states, weight and bias, chunk by chunk of rows.

    Those that are not wanted are empty.
    """
    n, vocab = len(hidden), len(weight)
    matrix = weight.to(hidden.dtype)
    wide = torch.promote_types(hidden.dtype, torch.float32)
    loss, nll = hidden.new_zeros((), dtype=wide), hidden.new_zeros((), dtype=wide)
    d_hidden = torch.empty_like(hidden) if wanted[0] else hidden.new_empty(0)
    d_weight = torch.zeros_like(weight, dtype=sum_dtype(weight)) if wanted[1] else hidden.new_empty(0)
    d_bias = torch.zeros_like(bias, dtype=sum_dtype(bias)) if wanted[2] and bias is not None else hidden.new_empty(0)
    step = rows_at_once(hidden, vocab)
    fast = onednn.serves(hidden[:step], matrix)  # oneDNN allocates the logits of each chunk, and needs no other buffer
    buffer = None if fast else _buffer(hidden, step, vocab)
    for start in range(0, n, step):
        h, target = hidden[start : start + step], labels[start : start + step, None]
        x = onednn.product(h, matrix) if buffer is None else torch.mm(h, matrix.T, out=buffer[: len(h)])
        x = x if bias is None else x.add_(bias)
        sums = _to_gradients(x, target, smoothing, z_loss, any(wanted))
        loss, nll = loss + sums[0], nll + sums[1]
        if wanted[0] and fast:
            d_hidden[start : start + step] = onednn.product(x, matrix.T)
        elif wanted[0]:
            torch.mm(x, matrix, out=d_hidden[start : start + step])
        if wanted[1]:
            _add_product(d_weight, x, h, fast)
        if wanted[2]:
            d_bias.add_(x.sum(0, dtype=wide))
        del x  # frees its memory for the next chunk's logits
    return loss, nll, d_hidden, d_weight, d_bias


def sum_dtype(parameter: Tensor) -> torch.dtype:
    """The dtype in which the gradient of a parameter is summed over chunks: fp32 if the parameter is narrower."""
    return torch.promote_types(parameter.dtype, torch.float32)


def _buffer(hidden: Tensor, rows: int, vocab: int) -> Tensor:
    """Allocate a buffer for the logits of one chunk, which every chunk reuses."""
    narrow = hidden.dtype != torch.promote_types(hidden.dtype, torch.float32)
    buffer = hidden.new_empty(rows, -(-vocab // ROW_MULTIPLE) * ROW_MULTIPLE if narrow else vocab)
    # oneDNN's bf16 products read up to a round number of columns and multiply by 0: NaN would stay
    buffer[:, vocab:] = 0
    return buffer[:, :vocab]


def rows_at_once(hidden: Tensor, vocab: int) -> int:
    """Number of rows of logits that are stored at a time."""
    n, width = hidden.shape
    rows = CHUNK_BYTES // (hidden.element_size() * vocab)
    if hidden.device.type == "cpu":
        rows = min(rows, max(CHUNK_ROWS, 2 * width))
    return max(1, min(n, rows))


def _to_gradients(x: Tensor, target: Tensor, smoothing: float, z_loss: float, grads: bool) -> tuple[Tensor, Tensor]:
    """Return the sums of loss and nll over rows of logits `x`, and replace x by d loss / d logits in place.

    With log p = x − log Z it is p · (1 + 2ζ log Z) − (1 − ε) onehot − ε/V. A CPU processes as many rows at a time as its
    cache holds, so logits are read from memory once and written once, in their own dtype.
    """
    n, vocab = x.shape
    wide = torch.promote_types(x.dtype, torch.float32)
    x_target = x.gather(1, target).to(wide)
    log_p_target, mean_log_p = torch.empty_like(x_target), x.new_zeros((n, 1) if smoothing else (), dtype=wide)
    step = n
    if x.device.type == "cpu":
        step = max(1, CACHE_BYTES // (wide.itemsize * vocab)) * torch.get_num_threads()
    block = x.new_empty(min(step, n), vocab, dtype=wide) if x.dtype != wide else x
    for start in range(0, n, step):
        rows = slice(start, start + step)
        part = x[rows] if x.dtype == wide else block[: len(x[rows])].copy_(x[rows])
        torch.ops.aten._log_softmax.out(part, -1, False, out=part)
        log_p_target[rows] = part.gather(1, target[rows])
        if smoothing:
            mean_log_p[rows] = part.mean(1, keepdim=True)
        if grads:
            part.exp_()
            if z_loss:
                part.mul_(1.0 + 2.0 * z_loss * (x_target[rows] - log_p_target[rows]))
            part.scatter_add_(1, target[rows], part.new_full((len(part), 1), smoothing - 1.0))
            if smoothing:
                part.sub_(smoothing / vocab)
            if x.dtype != wide:
                x[rows] = part
    nll = -log_p_target.sum()
    loss = (1.0 - smoothing) * nll - smoothing * mean_log_p.sum() + z_loss * (x_target - log_p_target).square().sum()
    return loss, nll


def _add_product(total: Tensor, d: Tensor, h: Tensor, fast: bool) -> None:
    """total += dᵀ h, added in the dtype of `total` if the product is narrower; by oneDNN if `fast`."""
    if fast and total.dtype == d.dtype:
        onednn.put_product(total, d, h, adds=True)
    elif total.dtype == d.dtype:
        total.addmm_(d.T, h)
    else:
        total.add_(d.T @ h)


@_linear_cross_entropy.register_fake
def _(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    z_loss: float,
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    scalar = hidden.new_empty((), dtype=torch.promote_types(hidden.dtype, torch.float32))
    return (
        scalar,
        scalar.clone(),
        torch.empty_like(hidden) if wanted[0] else hidden.new_empty(0),
        torch.empty_like(weight, dtype=sum_dtype(weight)) if wanted[1] else hidden.new_empty(0),
        torch.empty_like(bias, dtype=sum_dtype(bias)) if wanted[2] and bias is not None else hidden.new_empty(0),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.wanted = inputs[6]
    ctx.save_for_backward(*output[2:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 7
    found = zip(ctx.saved_tensors, ctx.wanted, strict=True)
    return *(d * grad.to(d.dtype) if wanted else None for d, wanted in found), None, None, None, None


_linear_cross_entropy.register_autograd(_gradients, setup_context=_setup)
