"""All layers of a stack in one call of C++, on CPUs: what the modules compute, without their overhead.

A decoding step reads a cache (`step.py`); encoders and prompts are whole sequences (`encoding.py`). Both describe the
layers if the kernels have all that they do (`layers.py`). If they don't, or if something watches the modules (hooks,
taps, gradients, autocast, compilers), the modules run as ever.
"""

from .encoding import fused_encoding
from .step import FusedStep, fused_step, reason_against

__all__ = ["FusedStep", "fused_encoding", "fused_step", "reason_against"]
