"""What generation needs of a model: the protocols `DecodingModel` and `DecodingCache`, and evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from ..core.layout import Layout
from ..core.several import shown
from ..nn.kv_cache.kinds import CacheKind


class DecodingCache(Protocol):
    """A model's KV cache."""

    def reorder(self, rows: Tensor, cross: bool = True) -> object:
        """Keep these rows, in this order; a row may be named several times.

        `cross=False`: every row keeps its source, so the keys and values of cross-attention stay in place.
        """


class RewindableCache(DecodingCache, Protocol):
    """A cache from which each row's last tokens can be removed; `qkv.nn.kv_cache.cache.Cache` says how."""

    def continued(
        self, lengths: Sequence[int], device: torch.device, side: Literal["left", "right"] = "right", /
    ) -> Layout: ...
    def rewind_rows(self, counts: Sequence[int]) -> None: ...
    def check_rewind_rows(self) -> None: ...


class DecodingModel(Protocol):
    """A decoder-only or encoder–decoder model; `qkv.nn.models.transformer.TransformerModel` is one."""

    @property
    def is_encoder_decoder(self) -> bool: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_positions(self) -> int | None: ...

    @property
    def device(self) -> torch.device: ...

    def start(
        self,
        batch_size: int | None = None,
        *,
        source: Tensor | None = None,
        source_layout: Layout | None = None,
        capacity: int | None = None,
        cache: CacheKind | None = None,
    ) -> DecodingCache: ...

    def step(self, ids: Tensor, cache: Any, layout: Layout | None = None) -> Tensor: ...

    def modules(self) -> Iterator[nn.Module]: ...


class ParallelDecoder(DecodingModel, Protocol):
    """A decoder whose step can give the logits of all its tokens, (B, T, V), as speculation needs.

    Its cache is a `RewindableCache`.
    """

    def step(self, ids: Tensor, cache: Any, layout: Layout | None = None, all_positions: bool = False) -> Tensor: ...


def check_predicts(model: DecodingModel) -> None:
    """Raise ValueError for what is no model, or predicts no next tokens: an encoder, or one without a head for tokens."""
    if not hasattr(model, "vocab_size"):
        raise ValueError(f"the model is one such as qkv.load(…).model, not {shown(model)}")
    spec = getattr(model, "spec", None)
    if getattr(spec, "decoder", spec) is None and spec is not None:
        raise ValueError("an encoder alone does not decode: its tokens see those after them, and none is predicted")
    head = getattr(spec, "head", spec)
    if spec is not None and head is None:
        raise ValueError(
            "this model has no head, so it predicts no tokens to generate or score; load a checkpoint of a class with a "
            "language-model head, or give it one by spec.replace(head=qkv.LanguageModel()) and train it"
        )
    if head is not None and not getattr(head, "predicts_tokens", True):
        raise ValueError(
            f"this model's head, {head.kind!r}, predicts no tokens to generate or score; load a checkpoint of a class "
            "with a language-model head"
        )


@contextmanager
def evaluating(model: DecodingModel) -> Iterator[None]:
    """Turn dropout and gradients off inside; afterwards every submodule is back in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def settled(cache: object) -> AbstractContextManager[None]:
    """A context in which the model's weights and hooks stay as they are, so its steps need not check them."""
    return cache.settle() if hasattr(cache, "settle") else nullcontext()
