"""What binds a training step of a recurrent encoder–decoder: bytes moved and FLOPs of each component (the roofline).

A recurrence multiplies the states of one token by its matrix W (gates · d × d) and needs the result for the next. W is
therefore read again at each step, forward and backward, with an intensity of only 2 · rows / bytes of an element (FLOPs
per byte). The products with the inputs and the gradient of W are of all steps at once. Attention that a step waits for
reads all keys and values of the source at each step, too. The weights by which the decoder reads a context are not
counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...layers.rnn import GATES, Cell
from ...models.recurrent.attention import Luong
from ...models.recurrent.deep import BottomAttention, Connections, connections_of, stack_widths
from ...models.recurrent.model import Recurrent
from ..accelerators import Accelerator
from ..flops import TRAINING, BatchShape, training_flops
from ..roofline import ACTIVATION, ADAMW_BYTES, LOSS, SCORES, WIDTH, Component, Roofline, summed


def roofline(spec: Recurrent, shape: BatchShape, hardware: Accelerator, precision: str) -> Roofline:
    """The roofline of a training step of a batch with AdamW. Tensors count as in `cost.roofline`.

    Kernels that keep the recurrent matrix on the chip for several steps move fewer bytes.
    """
    components: list[Component] = summed(_components(spec, shape, WIDTH[precision]))
    return Roofline(hardware, precision, "step-by-step", components, training_flops(spec, shape))


def _components(spec: Recurrent, shape: BatchShape, width: int) -> Iterator[tuple[str, int, int]]:
    """(name, FLOPs, bytes) of each component."""
    w, rows = spec.widths, shape.rows
    tokens, read = rows * shape.length, rows * shape.source
    flops = {name: TRAINING * rows * cost.flops for name, cost in spec.parts(shape.length, shape.source).items()}
    moved = sum(_recurrence(*layers, shape.source, rows) for layers in _encoder(spec))
    yield "encoder recurrence", flops["encoder"], width * moved
    moved = sum(_recurrence(*layers, shape.length, rows) for layers in _decoder(spec))
    yield "decoder recurrence", flops["decoder"], width * moved
    kept = spec.context.kept(w)
    if kept.read:
        at_once = isinstance(spec.context, Luong) and not spec.context.feeding
        passes = rows * (1 if at_once else shape.length)
        # Forward reads keys and values, backward reads them and adds to their gradients.
        moved = 4 * passes * shape.source * kept.read + SCORES * tokens * shape.source
        yield "attention", flops["attention"], width * moved
    if "readout" in flops:
        matrix = flops["readout"] // (2 * TRAINING * max(tokens, 1))
        yield "readout", flops["readout"], width * TRAINING * (matrix + tokens * (w.d_s + w.d_m + spec.d_o))
    yield "embeddings", 0, 2 * width * (tokens + read) * spec.d_e
    matrix = spec.d_o * spec.vocab_size
    yield "head", flops["head"], width * TRAINING * (matrix + tokens * (spec.d_o + spec.vocab_size))
    yield "loss", 0, 4 * LOSS * tokens * spec.vocab_size
    yield "optimizer", 0, ADAMW_BYTES * spec.n_parameters


Layers = tuple[Cell, int, int, int, int]
"""Cell, width read, width of states, number and directions of recurrent layers."""


def _encoder(spec: Recurrent) -> list[Layers]:
    if spec.connections is None:
        return [(spec.cell, spec.d_e, spec.d_h, spec.encoder_layers, spec.directions)]
    columns = spec.connections.columns(spec.encoder_layers, spec.directions)
    return [one for sides in columns for one in _stack(spec.connections, spec.cell, spec.d_e, spec.d_h, sides)]


def _decoder(spec: Recurrent) -> list[Layers]:
    w = spec.widths
    if not isinstance(spec.context, BottomAttention):
        return [(w.cell, w.d_e, w.d_s, w.n_layers, 1)]
    deep, sides = connections_of(w), ["forward"] * (w.n_layers - 1)
    return [(w.cell, w.d_e, w.d_s, 1, 1), *_stack(deep, w.cell, deep.width(w.cell, w.d_s), w.d_s, sides)]


def _stack(deep: Connections, cell: Cell, d_in: int, d: int, sides: Sequence[Any]) -> list[Layers]:
    widths = stack_widths(deep, cell, d_in, d, sides)
    return [(cell, width, d, 1, 1 + (side == "both")) for width, side in zip(widths, sides, strict=True)]


def _recurrence(cell: Cell, d_in: int, d: int, n_layers: int, directions: int, length: int, rows: int) -> int:
    """Elements moved by recurrent layers, forward and backward."""
    tokens, gates, total = rows * length, GATES[cell] * d, 0
    for layer in range(n_layers):
        inner = d_in if layer == 0 else directions * d
        inputs = TRAINING * (gates * inner + tokens * (inner + gates))
        steps = 2 * length * gates * d + gates * d + TRAINING * tokens * (d + gates)
        total += directions * (inputs + steps + ACTIVATION * tokens * gates)
    return total
