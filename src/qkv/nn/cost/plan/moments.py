"""Bytes that a rank holds at the moments of a training that are not steps, in qkv.

With a rank's weights w, its optimizer state o, P parameters in all and m numbers in the largest tensor:

    start        w + 4 m         a model that is divided is drawn one whole parameter at a time
    resume       w + o + 4 m     tensors are read one after the other, each rank's slice of them
    evaluation   w + o + 4 P     all parameters are gathered on every rank, in fp32; in ZeRO 3 narrow ones too (+ 2 P)
    delivery     w + o + 4 P     as for an evaluation, which follows

Ranks that have the whole model have 4 P = w, and gather nothing. A model that is loaded is whole at the start, too.
"""

from __future__ import annotations

from .execution import Execution
from .layout import RankLayout
from .rank_memory import FRAGMENTATION, RankMemory
from .work import ModelWork


def moments(model: ModelWork, layout: RankLayout, how: Execution, held: RankMemory) -> dict[str, float]:
    """Return the bytes of the fullest rank at each moment, with what libraries and the allocator need.

    held: what the rank holds in a step.
    """
    divides = layout.zero == 3 or layout.tensor * layout.expert * layout.pipeline > 1
    largest = max([model.embedding, model.head, *(size for layer in model.kinds for size in layer.matrices)], default=0)
    one = how.weights * largest if divides else 0.0
    narrow = how.gathered if layout.zero == 3 and how.gathered < how.weights else 0.0
    whole = (how.weights + narrow) * model.parameters if divides else 0.0
    kept = held.weights + held.optimizer
    sizes = {
        "start": held.weights + one,
        "resume": kept + one,
        "evaluation": kept + whole + held.logits,
        "delivery": kept + whole,
    }
    return {name: FRAGMENTATION * size + how.reserve for name, size in sizes.items()}
