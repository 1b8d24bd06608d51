"""What models for long texts require of batches: tokens with global attention (Longformer), no padding (BigBird)."""

from __future__ import annotations

from ..attention.bigbird import BlockSparseAttention
from ..attention.longformer import GlobalAttention
from ..attention.multi_head import Attention
from ..patterns.basic import Global, Pattern
from .build import AnyModel
from .ensemble import EnsembleModel
from .stack import Stack
from .transformer import Transformer


def has_global_attention(model: AnyModel) -> bool:
    """Whether a model has Longformer's global attention; the task chooses the global tokens."""
    return _has_attention(model, GlobalAttention)


def has_global_tokens(stack: Stack) -> bool:
    """Whether a pattern of the stack has `global_tokens()`, which attend to all tokens and are attended by all. The task
    chooses them."""
    patterns = (getattr(block.attention, "pattern", None) for block in stack.blocks)
    parts = (part for pattern in patterns if isinstance(pattern, Pattern) for _, part in pattern.walk())
    return any(isinstance(part, Global) and part.first is None for part in parts)


def reads_unpadded(model: AnyModel) -> bool:
    """Whether a model's output for a row depends on its padding, so batches must hold rows of one length: BigBird's
    last block attends to all tokens, and where it begins depends on the width of rows."""
    return _has_attention(model, BlockSparseAttention)


def _has_attention(model: AnyModel, kind: type[Attention]) -> bool:
    if isinstance(model, EnsembleModel):
        return any(_has_attention(one, kind) for one in model.members)
    spec = model.spec
    stack = (spec.encoder or spec.output) if isinstance(spec, Transformer) else None
    return stack is not None and any(isinstance(block.attention, kind) for block in stack.blocks)
