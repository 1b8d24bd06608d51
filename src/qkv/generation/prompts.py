"""Prompts for generation: checks, left padding, and the number of new tokens that each row has room for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.layout import Layout, Role
from ..nn.kv_cache.kinds import CacheKind
from ..nn.models.joint import MediaInputs
from ..nn.patterns.basic import reads_prefix
from .model_interface import DecodingCache, DecodingModel

ROOM = 512  # new tokens that a cache is allocated for at first; it grows by itself after that

Ids = Tensor | Sequence[Sequence[int]]  # (B, T), or a list of rows of any lengths


@dataclass(frozen=True, eq=False)
class Prompts:
    """A batch of prompts.

    ids:     (B, W) the decoder's tokens, padded on the left with 0.
    layout:  the positions of the tokens, and which are padding.
    rows:    the same tokens on the host, without padding.
    limits:  the most new tokens of each row: max_new_tokens, or fewer where the model's context ends.
    cache:   the kind of KV cache.
    source, source_layout: the encoder's input, for an encoder–decoder: tokens, or pixels (B, C, H, W).
    media:   pictures, sounds … in the places of placeholder tokens, by name.
    """

    ids: Tensor
    layout: Layout
    rows: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    cache: CacheKind | None = None
    source: Tensor | None = None
    source_layout: Layout | None = None
    media: MediaInputs | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def prefill(self, model: DecodingModel) -> tuple[Any, Tensor]:
        """Return a cache that holds the prompts, and the (B, V) logits of their next tokens."""
        cache = self.start(model)
        return cache, self.read(model, cache)

    def read(self, model: DecodingModel, cache: DecodingCache) -> Tensor:
        """Feed the prompts to a model: the (B, V) logits of their next tokens."""
        options: dict[str, Any] = {} if self.media is None else {"media": self.media}
        return model.step(self.ids, cache, self.layout, **options)

    def start(self, model: DecodingModel) -> DecodingCache:
        """Return an empty cache for the prompts."""
        capacity = self.ids.shape[1] + min(max(self.limits), ROOM)
        options: dict[str, Any] = {} if self.cache is None else {"cache": self.cache}
        if self.source is None:
            return model.start(len(self), capacity=capacity, **options)
        return model.start(source=self.source, source_layout=self.source_layout, capacity=capacity, **options)

    def history(self) -> Tensor:
        """(B, W) ids with −1 at padding, as processors read them."""
        return self.ids.masked_fill(~self.layout.valid, -1)


def prepare(
    model: DecodingModel,
    ids: Ids,
    *,
    layout: Layout | None,
    attention_mask: Tensor | None,
    target: Ids | None,
    target_layout: Layout | None,
    bos_id: int | None,
    max_new_tokens: int,
    cache: CacheKind | None = None,
    media: MediaInputs | None = None,
) -> Prompts:
    """Check the prompts and pad them on the left. An encoder–decoder's prompt is `target`, or `bos_id` alone. Tokens of the
    prompts of a prefix language model have the role PREFIX, unless the layout has roles."""
    if media is not None and (model.is_encoder_decoder or "media" not in inspect.signature(model.step).parameters):
        raise ValueError("only a decoder with a joint input (nn.models.joint) generates from media; leave media out")
    source: Tensor | None = None
    source_layout: Layout | None = None
    if model.is_encoder_decoder:
        source, source_layout = _source(ids, layout, attention_mask, model.device)
        if target is None:
            if bos_id is None:
                raise ValueError(
                    "an encoder–decoder starts from bos_id; give it, or the decoder's first tokens as target"
                )
            target = torch.full((source.shape[0], 1), bos_id)
        ids, layout, attention_mask = target, target_layout, None
    elif target is not None or target_layout is not None:
        raise ValueError("target is an encoder–decoder's prompt; this model is decoder-only and continues ids")
    prompt, prompt_layout = _left(*batch_of(ids, layout, attention_mask, model.device), bos_id)
    if source is not None and source.shape[0] != prompt.shape[0]:
        raise ValueError(
            f"sources and targets differ in number ({source.shape[0]} and {prompt.shape[0]}); give one target for each"
        )
    if prompt_layout.roles is None:
        prompt_layout = with_prompts(model, prompt_layout)
    rows = _rows(prompt, prompt_layout)
    _check_vocabulary(rows, model.vocab_size)
    context = None if cache is not None and cache.endless else model.max_positions
    limits = tuple(_room(i, len(row), max_new_tokens, context) for i, row in enumerate(rows))
    return Prompts(prompt, prompt_layout, rows, limits, cache, source, source_layout, media)


def with_prompts(model: object, layout: Layout, lengths: Sequence[int] | None = None) -> Layout:
    """Give the tokens of prompts the role PREFIX, if some layer of the model depends on it.

    lengths: the number of tokens of each row's prompt, which begins the row; None if all tokens are prompts.
    """
    if not marks_prompts(model):
        return layout
    prompt = layout.valid
    if lengths is not None:
        ends = torch.tensor(lengths, device=layout.device)[:, None]
        prompt = prompt & (torch.arange(layout.shape[1], device=layout.device) < ends)
    return layout.with_roles(prompt * int(Role.PREFIX))


def marks_prompts(model: object) -> bool:
    """Whether some layer of a decoder depends on which tokens have the role PREFIX, as tokens of prompts do."""
    decoder = getattr(getattr(model, "spec", None), "decoder", None)
    blocks = getattr(decoder, "blocks", ())
    return any(map(reads_prefix, {getattr(block.attention, "pattern", None) for block in blocks}))


def _source(
    ids: Ids, layout: Layout | None, attention_mask: Tensor | None, device: torch.device
) -> tuple[Tensor, Layout | None]:
    """The encoder's input: tokens, or numbers such as pixels, whose positions come from their embedding."""
    if not isinstance(ids, Tensor) or not ids.is_floating_point() or ids.ndim < 3:
        return batch_of(ids, layout, attention_mask, device)
    if attention_mask is not None:
        raise ValueError("an attention mask is for tokens; give a layout to show parts of a picture only")
    if not len(ids):
        raise ValueError("there are no prompts: the source has no rows")
    return ids.to(device), None if layout is None else layout.to(device)


def batch_of(
    ids: Ids, layout: Layout | None, attention_mask: Tensor | None, device: torch.device
) -> tuple[Tensor, Layout]:
    """Return ids and their layout on the model's device, with 0 at padding."""
    if not isinstance(ids, Tensor):
        if layout is not None or attention_mask is not None:
            raise ValueError("a list of rows needs no layout or attention_mask; give those with a tensor only")
        ids, layout = padded(ids)
    if ids.ndim != 2 or ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
        raise ValueError(f"ids are integers of shape (batch, length), not {ids.dtype} {tuple(ids.shape)}")
    if ids.shape[0] == 0:
        raise ValueError("there are no prompts: ids has no rows")
    if attention_mask is not None:
        if layout is not None:
            raise ValueError("give layout or attention_mask, not both")
        layout = Layout.from_mask(attention_mask)
    layout = Layout.full(ids.shape[1]) if layout is None else layout
    if layout.shape[1] != ids.shape[1] or layout.shape[0] not in (1, ids.shape[0]):
        raise ValueError(f"the layout (or mask) is of {tuple(layout.shape)} tokens, the ids of {tuple(ids.shape)}")
    layout = layout.to(device)
    return ids.to(device, torch.long).masked_fill(~layout.valid, 0), layout


def padded(rows: Sequence[Sequence[int]], device: torch.device | None = None) -> tuple[Tensor, Layout]:
    """Rows of any lengths as one right-padded tensor and its layout, on `device` (by default the CPU)."""
    if any(isinstance(row, int) for row in rows):
        raise ValueError("ids are rows of integers; put a single prompt into a list: [ids]")
    lengths = list(map(len, rows))
    ids = torch.zeros(len(rows), max(lengths, default=0), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.as_tensor(row, dtype=torch.long)
    return ids.to(device), Layout.from_lengths(lengths).to(device or ids.device)


def length_groups(lengths: Sequence[int], most: int, padded: bool = True) -> Iterator[list[int]]:
    """Indices in groups of similar lengths, or of equal lengths if rows must not be `padded`.

    A group's rows have at most `most` tokens, padding included; a longer row is a group by itself.
    """
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        full = (len(group) + 1) * lengths[i] > most
        if group and (full or not (padded or lengths[i] == lengths[group[0]])):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def _left(ids: Tensor, layout: Layout, bos_id: int | None) -> tuple[Tensor, Layout]:
    """Move padding to the left, and put the starting token into empty rows."""
    if layout.segments is not None and not layout.one_segment:
        raise ValueError("a row of the prompt holds several packed documents; generation continues one per row")
    if layout.padding in ("right", "mixed"):
        ids, layout = _shift(ids, layout)
    lengths = list(layout.lengths or layout.valid.sum(1).expand(ids.shape[0]).tolist())
    if all(lengths):
        return ids, layout
    if bos_id is None:
        raise ValueError(f"prompt {lengths.index(0)} is empty and there is no bos_id to start from; give either")
    if ids.shape[1] == 0:
        ids = ids.new_zeros(ids.shape[0], 1)
    empty = torch.tensor([n == 0 for n in lengths], device=ids.device)
    ids = ids.clone()
    ids[empty, -1] = bos_id
    return ids, Layout.from_lengths([max(n, 1) for n in lengths], ids.shape[1], "left", ids.device)


def _shift(ids: Tensor, layout: Layout) -> tuple[Tensor, Layout]:
    """Move the padding of every row to its left; tokens keep their positions and roles."""
    order = layout.valid.to(torch.int8).argsort(dim=1, stable=True)

    def move(t: Tensor) -> Tensor:
        return t.gather(1, order.expand(t.shape[0], -1))

    axes = [move(axis) for axis in layout.positions.unbind(-1)]
    first = axes[0]
    valid = first >= 0
    sequential = bool(((first[:, 1:] - first[:, :-1] == 1) | ~valid[:, :-1]).all())
    lengths = layout.lengths or tuple(valid.sum(1).tolist())
    return ids.gather(1, order.expand(ids.shape[0], -1)), Layout(
        torch.stack(axes, -1),
        roles=None if layout.roles is None else move(layout.roles),
        padding="left",
        sequential=sequential,
        lengths=lengths,
    )


def _rows(ids: Tensor, layout: Layout) -> tuple[tuple[int, ...], ...]:
    tokens = ids.tolist()
    if layout.padding == "none":
        return tuple(map(tuple, tokens))
    valid = layout.valid.expand(ids.shape).tolist()
    return tuple(tuple(t for t, v in zip(*pair, strict=True) if v) for pair in zip(tokens, valid, strict=True))


def _check_vocabulary(rows: Sequence[Sequence[int]], vocab_size: int) -> None:
    for i, row in enumerate(rows):
        for token in row:
            if not 0 <= token < vocab_size:
                raise ValueError(f"prompt {i} holds token {token}; the model's vocabulary is 0 … {vocab_size - 1}")


def _room(row: int, length: int, wanted: int, context: int | None) -> int:
    if context is None:
        return wanted
    if length >= context:
        raise ValueError(
            f"prompt {row} has length {length}, which leaves no room in the model's context of {context}; "
            f"shorten it to {context - 1} or fewer"
        )
    return min(wanted, context - length)
