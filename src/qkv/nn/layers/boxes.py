"""Bounding boxes: conversion between corners and center with size, IoU and generalized IoU."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def corners(boxes: Float[Tensor, "... 4"]) -> Float[Tensor, "... 4"]:
    """(left, top, right, bottom) of boxes (center x, center y, width, height)."""
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([center - half, center + half], -1)


def centered(boxes: Float[Tensor, "... 4"]) -> Float[Tensor, "... 4"]:
    """(center x, center y, width, height) of boxes (left, top, right, bottom)."""
    first, last = boxes[..., :2], boxes[..., 2:]
    return torch.cat([(first + last) / 2, last - first], -1)


def overlap(a: Float[Tensor, "... 4"], b: Float[Tensor, "... 4"]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """IoU = |A ∩ B| / |A ∪ B| and generalized IoU, IoU − (|C| − |A ∪ B|) / |C| with C the smallest box around both
    (Rezatofighi et al. 2019), of boxes by their corners. Shapes broadcast."""
    inner = _area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))
    outer = _area(torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:]))
    union = _area(a[..., :2], a[..., 2:]) + _area(b[..., :2], b[..., 2:]) - inner
    iou = inner / union
    return iou, iou - (outer - union) / outer


def _area(first: Float[Tensor, "... 2"], last: Float[Tensor, "... 2"]) -> Float[Tensor, "..."]:
    return (last - first).clamp(min=0).prod(-1)
