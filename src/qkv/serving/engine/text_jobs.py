"""A model that reads whole texts for many requests: which of their batches change no number."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from ...nn.kernels.native.products import ANY, PANELS, in_one_order
from ...nn.models.fused_step.encoding import encodes_in_panels, reads_in_panels
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.text import Span, TokenClassifier
from ...nn.models.transformer import TransformerModel
from ...runs.inference.loaded import LoadedModel
from .jobs import Job

Item = TypeVar("Item")
Result = TypeVar("Result")


class TextJobs:
    """Makes jobs from texts that are read whole; texts of several requests become one batch.

    By default, texts are joined only if each text gets the same numbers, to the bit, in any batch. This is the case if
    `encodes_in_panels` holds for the model's stack, whose products are then computed in panels, and if the head treats each
    text independently. A head that averages hidden states doesn't, because the order of its sum depends on the padding. All
    other jobs are computed one by one. With `fast`, all texts are joined, and the fastest products are used.
    """

    def __init__(self, run: LoadedModel, fast: bool = False) -> None:
        self.fast = fast
        self.joins_states, self.joins_heads = encodes_exactly(run.model), _exact_heads(run.model)

    def job(
        self,
        kind: Hashable,
        inputs: Sequence[Item],
        compute: Callable[[Sequence[Item]], Sequence[Result]],
        by_head: bool = True,
    ) -> Job[Item, Result]:
        """A job for the engine. `by_head`: whether the model's head computes its results."""
        exact = self.joins_heads if by_head else self.joins_states

        def ordered(some: Sequence[Item]) -> Sequence[Result]:
            with in_one_order(PANELS if exact and not self.fast else ANY):
                return compute(some)

        return Job(ordered, inputs, (self, kind) if exact or self.fast else None)


def reads_exactly(model: object) -> bool:
    """Whether tokens of a prompt get the same numbers, to the bit, whichever pieces a decoder reads it in."""
    if (
        not isinstance(model, TransformerModel)
        or model.device.type != "cpu"
        or model.is_encoder_decoder
        or model.training
    ):
        return False
    stack: Any = model.decoder
    return stack is not None and reads_in_panels(stack, model.dtype) and _has_plain_products(stack.embedding)


def encodes_exactly(model: object) -> bool:
    """Whether hidden states of a text, from the encoder if there is one, are the same, to the bit, in any batch."""
    if not isinstance(model, TransformerModel) or model.device.type != "cpu" or model.training:
        return False
    stack: Any = model.encoder if model.encoder is not None else model.decoder
    return encodes_in_panels(stack, model.dtype) and _has_plain_products(stack.embedding)


def _exact_heads(model: Any) -> bool:
    if not encodes_exactly(model) or model.is_encoder_decoder:
        return False
    head = model.spec.head
    if isinstance(head, SequenceClassifier):
        return head.pool != "mean" and _has_plain_products(model.head)
    return isinstance(head, TokenClassifier | Span) and _has_plain_products(model.head)


def _has_plain_products(module: nn.Module) -> bool:
    """Whether all matrices are in fp32, of which panels take any."""
    matrices = (each.weight for each in module.modules() if isinstance(each, nn.Linear))
    return all(isinstance(each, torch.Tensor) and each.dtype == torch.float32 for each in matrices)
