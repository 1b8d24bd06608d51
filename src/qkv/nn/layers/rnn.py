"""Recurrent layers (RNN, GRU, LSTM) over whole sequences, in PyTorch's fused kernels (cuDNN, oneDNN), and step by step.

    rnn:   h_t = tanh(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh)                                (Elman 1990)
    gru:   r, z = σ(W_ih x_t + W_hh h_{t−1} + b);  n = tanh(W_in x_t + b_in + r ∘ (W_hn h_{t−1} + b_hn));
           h_t = (1 − z) ∘ n + z ∘ h_{t−1}                                                  (Cho et al. 2014)
    lstm:  i, f, o = σ(…), g = tanh(…);  c_t = f ∘ c_{t−1} + i ∘ g;  h_t = o ∘ tanh(c_t)
                                                                                  (Hochreiter & Schmidhuber 1997)

Rows of a batch differ in length. A kernel that reads padding would carry it on, so rows are moved to the left
(`PaddedRows`), and the backward direction begins at each row's own end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ...core.layout import Layout
from .dropout import dropout
from .shared_matrix import Shared

Cell = Literal["rnn", "gru", "lstm"]
States = tuple[Tensor, ...]  # h (L · directions, B, d), and c of an LSTM
Step = Callable[[Tensor, list[States]], list[States]]

GATES: dict[Cell, int] = {"rnn": 1, "gru": 3, "lstm": 4}
_LAYERS: dict[Cell, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
_KERNELS: dict[Cell, Callable[..., Any]] = {"rnn": torch.rnn_tanh, "gru": torch.gru, "lstm": torch.lstm}


def rnn_parameters(cell: Cell, d_in: int, d: int, n_layers: int = 1, directions: int = 1) -> int:
    """Number of parameters of stacked layers: 2 matrices and 2 biases for each gate, as in PyTorch."""
    first, others = (GATES[cell] * d * (width + d + 2) * directions for width in (d_in, directions * d))
    return first + (n_layers - 1) * others


def rnn_flops(cell: Cell, d_in: int, d: int, n_layers: int = 1, directions: int = 1) -> int:
    """FLOPs of one token; a multiply-add counts as two."""
    return 2 * (rnn_parameters(cell, d_in, d, n_layers, directions) - 2 * GATES[cell] * d * n_layers * directions)


@dataclass(frozen=True, eq=False)
class PaddedRows:
    """Rows with padding, for recurrent layers: how to move real tokens to the left.

    lengths: numbers of real tokens, on the host. order: index of the column that moves to column j; None if rows are padded
    on the right already.
    """

    lengths: tuple[int, ...]
    order: Int[Tensor, "B T"] | None = None

    @classmethod
    def of(cls, layout: Layout, batch: int) -> PaddedRows | None:
        """Return None if no row has padding. Raises ValueError for packed documents: a state would leak between them."""
        if not layout.one_segment:
            raise ValueError(
                "a recurrent model reads one sequence a row, and this layout packs several; set batching.packing to false"
            )
        if layout.padding == "none":
            return None
        known = layout.lengths if layout.lengths is not None else tuple(layout.valid.sum(1).tolist())
        lengths = known if len(known) == batch else known * batch
        if layout.padding == "right":
            return cls(lengths)
        order = (~layout.valid).to(torch.int8).argsort(dim=1, stable=True)
        return cls(lengths, order.expand(batch, -1))

    def gather(self, x: Tensor) -> Tensor:
        """Move real tokens of x (B, T, …) to the left."""
        return x if self.order is None else take(x, self.order)

    def spread(self, x: Tensor) -> Tensor:
        """Undo `gather`."""
        return x if self.order is None else take(x, self.order.argsort(1))

    def ends(self, device: torch.device) -> Int[Tensor, "B 1"]:
        """The column after each row's last token."""
        return torch.tensor(self.lengths, device=device)[:, None]

    def reversed(self, width: int, device: torch.device) -> Int[Tensor, "B T"]:
        """Return the index that reverses the real tokens of every row; it is its own inverse."""
        column, ends = torch.arange(width, device=device), self.ends(device)
        return torch.where(column < ends, ends - 1 - column, column)


def take(x: Float[Tensor, "B T *D"], index: Int[Tensor, "B J"]) -> Float[Tensor, "B J *D"]:
    """Return x[b, index[b, j]] for every row b and column j."""
    return x[torch.arange(len(x), device=x.device)[:, None], index]


def _lacks_half_precision(x: Tensor, cell: Cell) -> bool:
    """Whether autocast asks for an LSTM that oneDNN lacks: in bf16 or fp16 on processors without instructions for it."""
    if cell != "lstm" or x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return False
    bf16 = torch.get_autocast_dtype("cpu") == torch.bfloat16
    has = torch.ops.mkldnn._is_mkldnn_bf16_supported if bf16 else torch.ops.mkldnn._is_mkldnn_fp16_supported
    return not has()


class Recurrence(nn.Module):
    """Stacked recurrent layers in one or both directions. The parameters are the PyTorch module's, `rnn`."""

    def __init__(
        self, cell: Cell, d_in: int, d_out: int, n_layers: int = 1, directions: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.cell, self.d_in, self.d_out, self.n_layers, self.directions = cell, d_in, d_out, n_layers, directions
        self.dropout = dropout if n_layers > 1 else 0.0
        self.rnn = _LAYERS[cell](
            d_in, d_out, n_layers, batch_first=True, bidirectional=directions == 2, dropout=self.dropout
        )
        self.rnn.drawn = True  # initialized by the model's scheme instead of PyTorch's

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        rows: PaddedRows | None = None,
        start: States | None = None,
        finals: bool = True,
    ) -> tuple[Float[Tensor, "B T D"], States | None]:
        """Return the top layer's states, both directions concatenated, and with `finals` all layers' states at row ends.

        States beyond the end of a row are undefined. Without `finals`, kernels that read padding may be used, which are
        faster if there is little of it.
        """
        if _lacks_half_precision(x, self.cell):
            with torch.autocast("cpu", enabled=False):
                return self._forward(x.float(), rows, start, finals)
        return self._forward(x, rows, start, finals)

    def _forward(
        self, x: Tensor, rows: PaddedRows | None, start: States | None, finals: bool
    ) -> tuple[Tensor, States | None]:
        if rows is None:
            out, last = self.rnn(x, self._start(start))
            return out, _states(last)
        if finals or (self.directions == 2 and x.is_cuda):
            lengths = torch.tensor(rows.lengths)
            packed = pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
            out, last = self.rnn(packed, self._start(start))
            out = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]
            return out, self._unmoved(_states(last), start, lengths == 0)
        if self.directions == 1:
            return self.rnn(x, self._start(start))[0], None
        return self._both_ways(x, rows), None

    @staticmethod
    def _unmoved(last: States, start: States | None, empty: Tensor) -> States:
        """The states at row ends; rows without tokens, such as padding in a part of a prompt, stay where they started."""
        if not bool(empty.any()):
            return last
        empty = empty.to(last[0].device)[:, None]
        before = start or tuple(map(torch.zeros_like, last))
        return tuple(torch.where(empty, a.to(b.dtype), b) for a, b in zip(before, last, strict=True))

    def _start(self, start: States | None) -> Any:
        return start if start is None or self.cell == "lstm" else start[0]

    def _both_ways(self, x: Tensor, rows: PaddedRows) -> Tensor:
        """Run each direction on its own, the backward one over reversed rows."""
        reverse = rows.reversed(x.shape[1], x.device)
        for layer in range(self.n_layers):
            forward = self._run(x, self.weights(layer))
            backward = take(self._run(take(x, reverse), self.weights(layer, "_reverse")), reverse)
            x = torch.cat([forward, backward], -1)
            if layer < self.n_layers - 1:
                x = dropout(x, self.dropout, self.training)
        return x

    def weights(self, layer: int, direction: str = "") -> list[Tensor]:
        """Return W_ih, W_hh, b_ih and b_hh of a layer; `direction` is "_reverse" for the backward one."""
        parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return [getattr(self.rnn, f"{part}_l{layer}{direction}") for part in parts]

    def _run(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        zero = x.new_zeros(1, len(x), self.d_out)
        start = [zero, zero] if self.cell == "lstm" else zero
        out: Tensor = _KERNELS[self.cell](x, start, weights, True, 1, 0.0, self.training, False, True)[0]
        return out

    # -- step by step -------------------------------------------------------------------------------------------

    def read(self, x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B G"]:
        """Return W_ih x + b_ih of the first layer, where x is the first columns of its input."""
        return nn.functional.linear(x, self.columns(0, x.shape[-1]), self.weights(0)[2])

    def columns(self, start: int, stop: int | None = None) -> Float[Tensor, "G E"]:
        """Return W_ih of the first layer for some columns of its input."""
        return self.weights(0)[0][:, start:stop]

    def by_steps(self) -> Step:
        """Return `step(gates, states)` for a loop: the next states of all layers, from W_ih x + b_ih of the first."""
        weights = [self.weights(layer) for layer in range(self.n_layers)]
        products = [(Shared(w_ih.mT), Shared(w_hh.mT), b_ih, b_hh) for w_ih, w_hh, b_ih, b_hh in weights]

        def step(gates: Float[Tensor, "B G"], states: list[States]) -> list[States]:
            new: list[States] = []
            for state, (times_w_ih, times_w_hh, b_ih, b_hh) in zip(states, products, strict=True):
                if new:
                    gates = times_w_ih(dropout(new[-1][0], self.dropout, self.training)) + b_ih
                new.append(next_state(self.cell, gates, times_w_hh(state[0]) + b_hh, state))
            return new

        return step


def next_state(cell: Cell, x: Float[Tensor, "B G"], h: Float[Tensor, "B G"], state: States) -> States:
    """Return the next state from W_ih x + b_ih, W_hh h + b_hh and the previous state, in the state's dtype."""
    x, h = x.to(state[0].dtype), h.to(state[0].dtype)
    if cell == "rnn":
        return (torch.tanh(x + h),)
    if cell == "gru":
        d = state[0].shape[-1]
        r, z = torch.sigmoid(x[:, : 2 * d] + h[:, : 2 * d]).chunk(2, -1)
        n = torch.tanh(torch.addcmul(x[:, 2 * d :], r, h[:, 2 * d :]))
        return (torch.lerp(n, state[0], z),)
    i, f, g, o = (x + h).chunk(4, -1)
    c = torch.addcmul(torch.sigmoid(f) * state[1], torch.sigmoid(i), torch.tanh(g))
    return torch.sigmoid(o) * torch.tanh(c), c


def _states(last: Tensor | tuple[Tensor, ...]) -> States:
    return (last,) if isinstance(last, Tensor) else tuple(last)
