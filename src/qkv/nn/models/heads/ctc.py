"""Connectionist temporal classification (CTC): a symbol or a blank for each frame, and the likelihood of a text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from ....core.batch import IGNORE
from ....core.layout import Layout
from ....core.spec import Cost
from ...layers.dropout import dropout
from ...layers.linear import Linear
from ...layers.losses import LossSums, at_least_fp32
from .base import Head, HeadModule


class CTC(Head, kind="ctc"):
    """logits = h W + b over the vocabulary, of which the symbol `blank` says that a frame begins no new symbol.

    The likelihood of a text y is the sum over all alignments π of T frames that become y when repeats are merged and blanks
    removed, p(y | x) = Σ_π Π_t p_t(π_t) (Graves et al. 2006). A text of U symbols, R of them equal to the one before, needs
    T ≥ U + R frames. With `zero_infinity`, texts that need more have a loss of 0 and no gradient; otherwise theirs is
    infinite.
    """

    blank: int = Field(default=0, ge=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    zero_infinity: bool = True

    def module(self, d_model: int, vocab_size: int) -> HeadModule:
        if self.blank >= vocab_size:
            raise ValueError(f"head.blank is {self.blank}, and the vocabulary has {vocab_size} symbols")
        return CTCHead(self, d_model, vocab_size)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        return Cost(d_model * vocab_size + vocab_size, 2 * d_model * vocab_size * tokens)


class CTCHead(HeadModule):
    """The module of `CTC`."""

    takes_layout = True

    def __init__(self, spec: CTC, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.blank, self.dropout, self.zero_infinity = spec.blank, spec.dropout, spec.zero_infinity
        self.out = Linear(d_model, vocab_size)

    def forward(self, hidden: Float[Tensor, "B T M"], layout: Layout | None = None) -> Float[Tensor, "B T V"]:
        return self.out(dropout(hidden, self.dropout, self.training))

    def loss(
        self,
        hidden: Float[Tensor, "B T M"],
        labels: Int[Tensor, "B U"],
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        *,
        layout: Layout,
    ) -> LossSums:
        """−Σ log p(y | x) over the rows. Labels are the symbols of each text, then −100. A row without symbols is ignored.

        Raises ValueError for smoothing, a z-loss, labels that hold the blank, and a layout with padding on the left.
        """
        if label_smoothing or z_loss:
            raise ValueError("CTC has no label_smoothing and no z_loss; set both to 0")
        logits = at_least_fp32(self(hidden, layout))
        lengths, texts = frames_of(layout, *hidden.shape[:2]), symbols_of(labels)
        if any(self.blank in text for text in texts):
            raise ValueError(
                f"labels hold the blank, {self.blank}; give the head another blank, or the texts other ids"
            )
        counted = [row for row, text in enumerate(texts) if text]
        logits = logits if len(counted) == len(texts) else logits[counted]
        texts, lengths = [texts[row] for row in counted], tuple(lengths[row] for row in counted)
        count = torch.tensor(sum(map(len, texts)), device=logits.device)
        if not counted:
            return LossSums(logits.sum(), logits.detach().sum(), count)
        targets = torch.tensor([symbol for text in texts for symbol in text], dtype=torch.int64, device=logits.device)
        sums = F.ctc_loss(
            logits.log_softmax(-1).transpose(0, 1),
            targets,
            torch.tensor(lengths),
            torch.tensor([len(text) for text in texts]),
            blank=self.blank,
            reduction="sum",
            zero_infinity=self.zero_infinity,
        )
        return LossSums(sums, sums.detach(), count)


def frames_of(layout: Layout, rows: int, width: int) -> tuple[int, ...]:
    """The number of frames of each row. Raises ValueError if padding is not on the right."""
    if layout.padding == "none":
        return (width,) * rows
    if layout.padding != "right":
        raise ValueError("CTC reads rows that are padded on the right")
    lengths = layout.lengths if layout.lengths is not None else tuple(layout.valid.sum(1).tolist())
    return lengths * rows if len(lengths) == 1 else lengths


def symbols_of(labels: Int[Tensor, "B U"]) -> list[list[int]]:
    """The symbols of each row, without the −100 of padding."""
    return [[symbol for symbol in row if symbol != IGNORE] for row in labels.tolist()]


def frames_needed(symbols: Sequence[int]) -> int:
    """The fewest frames from which CTC can give a text: one for each symbol, and a blank between equal ones."""
    return len(symbols) + sum(a == b for a, b in pairwise(symbols))
