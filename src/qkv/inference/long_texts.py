"""What models for long texts want of their rows: tokens that see all (Longformer), rows without padding (BigBird)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..attention.bigbird import BlockSparseAttention
from ..attention.longformer import GlobalAttention
from ..attention.multi_head import Attention
from ..models.build import AnyModel
from ..models.stack import Stack
from ..models.transformer import Transformer
from ..patterns.basic import Global, Pattern

if TYPE_CHECKING:
    from .run import Run


def chooses_global(run: Run) -> bool:
    """Whether a model of the Hub has tokens that see all, which its own library chooses by what it is asked (Longformer).
    Of what was trained here the task says so."""
    return run.recipe is None and _attends_by(run.model, GlobalAttention)


def has_chosen_tokens(stack: Stack) -> bool:
    """Whether a stack has tokens that see all and are seen by all, which the task chooses: its pattern has
    `global_tokens()`."""
    patterns = (getattr(block.attention, "pattern", None) for block in stack.blocks)
    parts = (part for pattern in patterns if isinstance(pattern, Pattern) for _, part in pattern.walk())
    return any(isinstance(part, Global) and part.first is None for part in parts)


def reads_unpadded(model: AnyModel) -> bool:
    """Whether what a model says of a row depends on the padding behind it: which block is the last, that sees all,
    is a matter of how wide rows are (BigBird). Rows of one length are then read together, others apart."""
    return _attends_by(model, BlockSparseAttention)


def _attends_by(model: AnyModel, kind: type[Attention]) -> bool:
    spec = model.spec
    stack = (spec.encoder or spec.output) if isinstance(spec, Transformer) else None
    return stack is not None and any(isinstance(block.attention, kind) for block in stack.blocks)
