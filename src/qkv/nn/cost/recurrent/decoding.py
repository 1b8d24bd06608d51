"""Cost of generating text with a recurrent encoder–decoder: FLOPs, bytes read and kept states, of a source and of a token.

A recurrence keeps its last states, and with attention three vectors of each source token: the key, the state and the state
projected for the decoder. What it keeps does not grow with the text that it writes.
"""

from __future__ import annotations

from ...layers.rnn import GATES
from ...models.recurrent.model import Recurrent
from ..decoding import PRECISIONS, Computation


def kept_bytes(spec: Recurrent, source: int, precision: str = "bf16") -> int:
    """Return the bytes that decoding keeps of one row, after a source of `source` tokens."""
    kept = spec.context.kept(spec.widths)
    return _width(precision) * (kept.row + source * kept.source)


def source(spec: Recurrent, length: int, rows: int = 1, precision: str = "bf16") -> Computation:
    """Return the work of reading a source: the encoder, the decoder's first states, and keys and projected states.

    The recurrent matrices are read again at each of the `length` steps, all others once.
    """
    flops = spec.cost(0, length).flops
    matrices = spec.cost(0, 1).flops // 2  # each is used once for one token
    layers = spec.encoder_layers * spec.directions
    if spec.connections is not None:
        columns = spec.connections.columns(spec.encoder_layers, spec.directions)
        layers = sum(1 + (side == "both") for sides in columns for side in sides)
    recurrent = layers * GATES[spec.cell] * spec.d_h**2
    return Computation(rows * flops, _width(precision) * (matrices + (length - 1) * recurrent))


def token(spec: Recurrent, length: int, rows: int = 1, precision: str = "bf16") -> Computation:
    """Return the work of the next token of each row, after a source of `length` tokens.

    The step reads the matrices of the decoder and the head once for all rows, and what attention reads of each row's source.
    Biases, and the row of the embedding table, are not counted.
    """
    flops = spec.cost(1, length).flops - spec.cost(0, length).flops
    matrices = (spec.cost(1, 0).flops - spec.cost(0, 0).flops) // 2
    kept = spec.context.kept(spec.widths)
    return Computation(rows * flops, _width(precision) * (matrices + rows * (kept.row + length * kept.read)))


def _width(precision: str) -> int:
    return PRECISIONS[precision].itemsize
