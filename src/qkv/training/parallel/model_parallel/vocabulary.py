"""The vocabulary divided over ranks: token embeddings, logits and cross-entropy (Shoeybi et al. 2019, §3).

Each rank has the rows of some tokens. Logits are not gathered for the loss: the largest logit of a row, the sum of the
exponentials and the logit of the label are combined over ranks, a few rows at a time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from ....core.batch import IGNORE
from ....nn.layers.losses import LossSums, check, rows_at_once, sum_dtype, wants_gradients
from .. import collectives
from ..world import World
from .division import ParameterSlice


class Vocabulary:
    """The tokens of this rank, `part`, of `ranks`."""

    def __init__(self, ranks: World, part: ParameterSlice) -> None:
        self.ranks, self.part = ranks, part
        self.lengths = [length for _, length in part.places(ranks.size)]

    def embed(self, table: Float[Tensor, "v W"], ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T W"]:
        """The rows of the whole table at `ids`."""
        index = ids - self.part.start
        outside = (index < 0) | (index >= self.part.length)
        rows = F.embedding(index.masked_fill(outside, 0), table).masked_fill(outside[..., None], 0.0)
        return self.ranks.sum_with_gradient(rows)

    def logits(self, own: Float[Tensor, "B T v"]) -> Float[Tensor, "B T V"]:
        """The logits of all tokens, from the logits of this rank's tokens."""
        padded = F.pad(own, (0, max(self.lengths) - own.shape[-1]))
        every = collectives.gather(padded, self.ranks, padded.ndim - 1).chunk(self.ranks.size, -1)
        return torch.cat([part[..., :n] for part, n in zip(every, self.lengths, strict=True)], -1)

    def loss(
        self,
        hidden: Float[Tensor, "B T M"],
        weight: Float[Tensor, "v M"],
        bias: Float[Tensor, " v"] | None,
        labels: Int[Tensor, "B T"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> LossSums:
        """`layers.losses.linear_cross_entropy` of the whole vocabulary, on every rank."""
        check(hidden, labels, label_smoothing, z_loss)
        rows, flat = hidden.flatten(0, -2), labels.flatten()
        if torch.is_autocast_enabled(rows.device.type):
            rows = rows.to(torch.get_autocast_dtype(rows.device.type))
        wanted = wants_gradients(rows, weight, bias)
        loss, nll = _Loss.apply(rows, weight, bias, flat, self, label_smoothing, z_loss, wanted)
        return LossSums(loss, nll, (flat != IGNORE).sum())


class _Loss(torch.autograd.Function):
    """Sums of the loss and of the plain nll. Gradients are computed in the forward pass, as on one rank."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        vocabulary: Vocabulary,
        smoothing: float,
        z_loss: float,
        wanted: list[bool],
    ) -> tuple[Tensor, Tensor]:
        keep = (labels != IGNORE).nonzero().squeeze(-1)
        rows, labels = hidden[keep], labels[keep]
        wide = torch.promote_types(hidden.dtype, torch.float32)
        loss, nll = hidden.new_zeros((), dtype=wide), hidden.new_zeros((), dtype=wide)
        d_rows = torch.empty_like(rows) if wanted[0] else None
        d_weight = torch.zeros_like(weight, dtype=sum_dtype(weight)) if wanted[1] else None
        d_bias = torch.zeros_like(bias, dtype=sum_dtype(bias)) if wanted[2] and bias is not None else None
        step = rows_at_once(hidden, max(vocabulary.lengths))  # the same on all ranks, which sum each chunk together
        for start in range(0, len(rows), step):
            h, target = rows[start : start + step], labels[start : start + step, None]
            logits = F.linear(h, weight.to(h.dtype), None if bias is None else bias.to(h.dtype)).to(wide)
            sums, d_logits = _gradients(logits, target, vocabulary, smoothing, z_loss)
            loss, nll = loss + sums[0], nll + sums[1]
            narrow = d_logits.to(h.dtype)
            if d_rows is not None:
                d_rows[start : start + step] = narrow @ weight.to(h.dtype)
            if d_weight is not None:
                d_weight += (narrow.T @ h).to(d_weight.dtype)
            if d_bias is not None:
                d_bias += d_logits.sum(0).to(d_bias.dtype)
        d_hidden = None if d_rows is None else torch.zeros_like(hidden).index_copy_(0, keep, d_rows)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.ranks = vocabulary.ranks
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        total = ctx.ranks.sum(gradient)  # the losses of all ranks depend on this rank's logits
        d_hidden, d_weight, d_bias = (None if d is None else d * total.to(d.dtype) for d in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None, None, None, None


def _gradients(
    logits: Float[Tensor, "N v"], target: Int[Tensor, "N 1"], vocabulary: Vocabulary, smoothing: float, z_loss: float
) -> tuple[tuple[Tensor, Tensor], Float[Tensor, "N v"]]:
    """The sums of loss and nll over rows, and d loss / d logits = p (1 + 2ζ log Z) − (1 − ε) onehot − ε/V."""
    ranks, part = vocabulary.ranks, vocabulary.part
    largest = logits.max(-1, keepdim=True).values
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=ranks.group)
    index = target - part.start
    outside = (index < 0) | (index >= part.length)
    index = index.masked_fill(outside, 0)
    exponentials = (logits - largest).exp()
    own = [exponentials.sum(-1), logits.gather(1, index).masked_fill(outside, 0.0).squeeze(1), logits.sum(-1)]
    normalizer, at_target, total = ranks.sum(torch.stack(own)).unbind()
    log_z = normalizer.log() + largest.squeeze(1)
    nll = (log_z - at_target).sum()
    loss = (1.0 - smoothing) * nll + z_loss * log_z.square().sum()
    if smoothing:
        loss = loss + smoothing * (log_z - total / part.whole).sum()
    d = exponentials * ((1.0 + 2.0 * z_loss * log_z) / normalizer)[:, None]
    d.scatter_add_(1, index, (smoothing - 1.0) * (~outside).to(d.dtype))
    return (loss, nll), d - smoothing / part.whole if smoothing else d
