"""What transformers gives to a forward pass, as qkv's layouts, and what it gives that is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.layout import Layout
from ...core.several import shown
from ...core.spec import brief
from ...nn.kv_cache.cache import Cache


def layout_of(ids: Tensor, mask: Tensor | None, positions: Tensor | None, before: int = 0) -> Layout | None:
    """The layout of the last tokens of rows, of which `before` are in a cache. None if they continue the rows.

    Positions that start again within a row, without a mask, divide it into documents that don't see one another.
    Raises ValueError for arguments that are not tensors, and for a mask with more than two axes or another length.
    """
    for name, given in (("an attention mask is", mask), ("position_ids are", positions)):
        if given is not None and not isinstance(given, Tensor):
            raise ValueError(f"{name} a tensor (batch, length), not {shown(given)}")
    if mask is not None and mask.ndim != 2:
        raise ValueError(
            f"an attention mask is (batch, length) here, not {tuple(mask.shape)}; the spec's patterns say who sees whom"
        )
    if not isinstance(ids, Tensor) or ids.ndim < 2 or (ids.ndim > 2 and not ids.is_floating_point()):
        what = f"of the shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else shown(ids)
        raise ValueError(f"token ids are a tensor (batch, length), not {what}")
    rows, width = ids.shape[:2]
    if mask is not None and len(mask) != rows:
        raise ValueError(f"the attention mask has {len(mask)} rows, and the ids {rows}; give one for each")
    if positions is not None and (positions.shape[-1] != width or len(positions) not in (1, rows)):
        raise ValueError(f"position_ids have the shape {tuple(positions.shape)}, and the ids {(rows, width)}")
    if mask is not None and mask.shape[1] not in (width, before + width):
        raise ValueError(f"the attention mask has {mask.shape[1]} columns for {before} + {width} tokens")
    if before:
        if mask is not None and mask.shape[1] == width and not bool(mask.all()):
            raise ValueError(
                f"the attention mask has the {width} new tokens alone, and padding among them; give it for all "
                f"{before + width} tokens, as `generate` does"
            )
        if mask is None or mask.shape[1] == width or bool(mask[:, -width:].all()):
            return None
        real = mask.bool()
        return Layout(torch.where(real, real.long().cumsum(1) - 1, -1)[:, -width:])
    if positions is not None and mask is None:
        positions = positions.expand(len(ids), -1)
        if bool((positions.diff(dim=1) != 1).any()):
            segments = F.pad((positions.diff(dim=1) != 1).long().cumsum(1), (1, 0))
            return Layout(positions, segments, padding="none", one_segment=False, sequential=True)
        return Layout(positions, padding="none", sequential=True)
    if mask is None:
        return Layout.full(width, device=ids.device)
    layout = Layout.from_mask(mask)
    if positions is None or torch.equal(torch.where(layout.valid, positions, -1), layout.positions[..., 0]):
        return layout
    placed = torch.where(layout.valid, positions.expand(len(ids), -1), -1)
    return replace(layout, positions=placed[..., None], sequential=False, start=None)


def read_by(ids: Tensor | None, vectors: Tensor | None, names: str = "input_ids or inputs_embeds") -> Tensor:
    """What a model reads: token ids, or vectors in their places. Raises ValueError unless there is one of them."""
    given = ids if vectors is None else vectors
    if given is None or (ids is not None and vectors is not None):
        raise ValueError(f"give {names}" + (", not both" if given is not None else ""))
    return given


def check_positions(positions: Tensor | None, mask: Tensor | None, cache: Cache, width: int) -> None:
    """Raise ValueError for position ids of new tokens that are not those after the tokens in a cache."""
    if positions is None:
        return
    usual = cache.continued([width] * cache.batch_size, positions.device).positions[..., 0]
    real = None if mask is None else mask[:, -width:].bool()
    differs = positions.expand_as(usual) != usual
    if bool((differs if real is None else differs & real).any()):
        raise ValueError(
            "position_ids differ from the positions after the tokens in the cache, which a qkv model continues; leave "
            "position_ids out, or start without a cache"
        )


_KNOWN = {"return_dict", "use_cache", "cache_position", "num_items_in_batch", "logits_to_keep"}
# What generate and trainers pass on, and has no effect if a forward pass has no use for it.
_PACKED = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"}  # the same as position_ids say


def refuse_others(options: Mapping[str, Any], positions: Tensor | None = None) -> None:
    """Raise ValueError for an argument that would be ignored."""
    unknown = [name for name, value in options.items() if value is not None and name not in _KNOWN]
    unknown = [name for name in unknown if positions is None or name not in _PACKED]
    if _PACKED.intersection(unknown):
        raise ValueError(f"{brief(unknown[0])} needs position_ids, which start again with each text of a packed row")
    if unknown:
        raise ValueError(f"a qkv model takes no {brief(unknown[0])} in transformers")


def token_loss(logits: Tensor, labels: Tensor, items: Tensor | int | None = None, shift: bool = False) -> Tensor:
    """Mean cross-entropy over labels other than −100, or their sum divided by `items`, the labels of all micro-batches.
    With `shift`, each output is compared with the label of the next token."""
    check_labels(labels, logits.shape[:-1], "token")
    if shift:
        logits, labels = logits[:, :-1], labels[:, 1:]
    flat, wanted = logits.float().reshape(-1, logits.shape[-1]), labels.reshape(-1).to(logits.device)
    total = class_loss(flat, wanted, "sum")
    return total / ((wanted != -100).sum() if items is None else items)


def check_labels(labels: object, shape: Sequence[int], each: str) -> None:
    """Raise ValueError unless the labels are a tensor of this shape: one for `each` token, or text."""
    if not isinstance(labels, Tensor):
        raise ValueError(f"labels are a tensor of the shape {tuple(shape)}, not {shown(labels)}")
    if tuple(labels.shape) != tuple(shape):
        raise ValueError(f"labels have the shape {tuple(labels.shape)}, not {tuple(shape)}; give each {each} one")


def one_each(labels: Tensor, logits: Tensor, each: str) -> Tensor:
    """The labels (N) of N texts or pictures, which may be a column."""
    if isinstance(labels, Tensor) and labels.numel() == len(logits):
        return labels.view(-1)
    check_labels(labels, logits.shape[:1], each)
    return labels


def class_loss(logits: Tensor, labels: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
    """Cross-entropy of logits (N, classes) and labels (N). Raises ValueError for a label that is no class."""
    try:
        return F.cross_entropy(logits.float(), labels, reduction=reduction)
    except (IndexError, RuntimeError) as error:
        if labels.is_floating_point():
            raise ValueError(f"labels are integers, not {str(labels.dtype).removeprefix('torch.')}") from error
        low, high, classes = int(labels.min()), int(labels.max()), logits.shape[1]
        if low >= -100 and high < classes:
            raise
        raise ValueError(
            f"labels range from {low} to {high}, and there are {classes} classes; give 0 to {classes - 1}, or -100 where "
            "nothing counts"
        ) from error
