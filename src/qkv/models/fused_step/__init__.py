"""A decoding step of all layers of a decoder in one call of C++, on CPUs: what the modules compute, without their overhead.

`FusedStep.of(stack, cache)` describes the layers where the kernels have all that they do (`layers.py`), and a call of the
result runs them (`step.py`). Where they don't, or where something watches the modules (hooks, taps, gradients, autocast,
compilers), the modules run as ever.
"""

from .encoding import fused_encoding
from .step import FusedStep, fused_step

__all__ = ["FusedStep", "fused_encoding", "fused_step"]
