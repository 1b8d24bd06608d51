"""What models for long texts need of their rows: tokens with global attention (Longformer), no padding (BigBird)."""

from __future__ import annotations

from ..attention.bigbird import BlockSparseAttention
from ..attention.longformer import GlobalAttention
from ..attention.multi_head import Attention
from ..patterns.basic import Global, Pattern
from .build import AnyModel
from .stack import Stack
from .transformer import Transformer


def has_global_attention(model: AnyModel) -> bool:
    """Whether a model has Longformer's global attention, whose tokens the task chooses."""
    return _has_attention(model, GlobalAttention)


def has_global_tokens(stack: Stack) -> bool:
    """Whether the pattern of a stack has `global_tokens()`: tokens that attend to all and that all attend to, which the
    task chooses."""
    patterns = (getattr(block.attention, "pattern", None) for block in stack.blocks)
    parts = (part for pattern in patterns if isinstance(pattern, Pattern) for _, part in pattern.walk())
    return any(isinstance(part, Global) and part.first is None for part in parts)


def reads_unpadded(model: AnyModel) -> bool:
    """Whether a model's output for a row depends on the padding behind it: BigBird's last block, which attends to all,
    depends on how wide rows are. Batches then hold rows of one length."""
    return _has_attention(model, BlockSparseAttention)


def _has_attention(model: AnyModel, kind: type[Attention]) -> bool:
    spec = model.spec
    stack = (spec.encoder or spec.output) if isinstance(spec, Transformer) else None
    return stack is not None and any(isinstance(block.attention, kind) for block in stack.blocks)
