"""Recurrent encoder (RNN, GRU or LSTM, in one or both directions), and its output `EncodedSource`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ....core.layout import Layout
from ...layers.rnn import Cell, PaddedRows, Recurrence, States, take


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """An encoded source.

    states: h_j of every token, both directions concatenated. layout: their layout.
    final:  last state of each direction of the top layer. finals: last states of all layers, if they were requested.
    keys:   W_h h_j, the keys of the score. projected: W_c h_j, the states projected by the layer that reads contexts. Both
            are computed once for each sentence.
    """

    states: Float[Tensor, "B S M"]
    layout: Layout
    final: Float[Tensor, "B N D"] | None = None
    finals: States | None = None
    keys: Float[Tensor, "B S 1 A"] | None = None
    projected: Float[Tensor, "B S G"] | None = None


class RecurrentEncoder(nn.Module):
    """h_j = [→h_j; ←h_j] (Schuster & Paliwal 1997), or →h_j alone; `reverse` reads from the end (Sutskever et al. 2014)."""

    def __init__(
        self, cell: Cell, d_in: int, d_h: int, n_layers: int, directions: int, dropout: float, reverse: bool
    ) -> None:
        super().__init__()
        self.reverse = reverse
        self.layers = Recurrence(cell, d_in, d_h, n_layers, directions, dropout)

    def forward(self, x: Float[Tensor, "B S E"], layout: Layout, finals: bool) -> EncodedSource:
        """Encode a source; with `finals` keep the last states of all layers. Raises ValueError if a row has no tokens."""
        rows = PaddedRows.of(layout, len(x))
        check_lengths(x, rows)
        x = x if rows is None else rows.gather(x)
        states, last = self.layers(self._reversed(x, rows), rows, finals=finals)
        final = self._final(states, rows)
        states = self._reversed(states, rows)
        return EncodedSource(states if rows is None else rows.spread(states), layout, final, last if finals else None)

    def _reversed(self, x: Tensor, rows: PaddedRows | None) -> Tensor:
        if not self.reverse:
            return x
        return x.flip(1) if rows is None else take(x, rows.reversed(x.shape[1], x.device))

    def _final(self, states: Tensor, rows: PaddedRows | None) -> Float[Tensor, "B N D"]:
        """Return the last state of each direction: forward at a row's last token, backward at its first."""
        d = self.layers.d_out
        ends = states[:, -1, :d] if rows is None else take(states[..., :d], rows.ends(states.device) - 1)[:, 0]
        both = [ends, states[:, 0, d:]] if self.layers.directions == 2 else [ends]
        return torch.stack(both, 1)


def check_lengths(x: Tensor, rows: PaddedRows | None) -> None:
    """Raise ValueError for a row without tokens."""
    empty = 0 if x.shape[1] == 0 else None
    if rows is not None and 0 in rows.lengths:
        empty = rows.lengths.index(0)
    if empty is not None:
        raise ValueError(
            f"source {empty} has no tokens, and a recurrent encoder needs at least one; leave it out, "
            "or add an end-of-sequence token"
        )
