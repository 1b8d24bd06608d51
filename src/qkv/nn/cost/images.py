"""Tokens of an image or a sound, and made-up batches of them, for cost predictions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.batch import Batch
from ..layers.frames import Frames
from ..layers.patches import Patches, masked_layout
from ..layers.waveform import Waveform
from ..models.base import ModelSpec
from ..models.heads.pixel_masks import PixelMasks
from ..models.heads.vision import ImageClassifier, MaskTokens, PixelDecoder
from ..models.transformer import Transformer

_SAMPLES = 160_000  # of a sound for a model that reads samples: ten seconds at 16 kHz


def patches_of(spec: ModelSpec) -> Patches | Frames | Waveform | None:
    """Return the patches that a model cuts images into, or the frames or samples of sound that it reads; None for a model of
    tokens."""
    encoder = spec.encoder if isinstance(spec, Transformer) else None
    embedding = None if encoder is None else encoder.embedding
    return embedding if isinstance(embedding, Patches | Frames | Waveform) else None


def image_tokens(spec: ModelSpec) -> int | None:
    """Return the number of tokens of one image that a stack reads in training, without masked ones, or of the longest
    sound; None for text."""
    patches = patches_of(spec)
    if patches is None:
        return None
    if isinstance(patches, Frames):
        return patches.tokens
    if isinstance(patches, Waveform):
        return patches.tokens_of(_samples(patches))
    grid = patches.grid
    return grid.tokens - grid.patches + int(grid.patches * (1 - _masked(spec)))


def image_batch(spec: ModelSpec, rows: int, length: int = 1) -> Batch:
    """Make a batch of blank images or sounds, with labels of the head's shape, or None for a head without its own loss.

    An encoder–decoder gets a text of `length` tokens for each image.
    """
    patches = patches_of(spec)
    assert patches is not None
    if isinstance(patches, Frames):
        pixels = torch.zeros(rows, patches.mels, patches.frames)
    elif isinstance(patches, Waveform):
        pixels = torch.zeros(rows, 1, _samples(patches))
    else:
        pixels = torch.zeros(rows, patches.channels, *patches.image)
    inputs: dict[str, Any] = {"ids": pixels}
    if isinstance(patches, Patches) and _masked(spec):
        inputs["layout"] = masked_layout(patches.grid, torch.zeros(rows, patches.grid.patches), _masked(spec))
    labels = _labels(spec, pixels) if pixels.ndim == 4 else None
    tokens = rows * (image_tokens(spec) or 0)
    if spec.is_encoder_decoder:
        labels = inputs["target"] = torch.zeros(rows, length, dtype=torch.int64)
        tokens += rows * length
    return Batch(inputs, labels, {"loss": rows}, tokens, tokens)


def _samples(waveform: Waveform) -> int:
    return max(_SAMPLES, waveform.shortest)


def _masked(spec: ModelSpec) -> float:
    return getattr(getattr(spec, "head", None), "masked", 0.0)


def _labels(spec: ModelSpec, pixels: Tensor) -> Tensor | None:
    rows, _, height, width = pixels.shape
    match getattr(spec, "head", None):
        case ImageClassifier():
            return torch.zeros(rows, dtype=torch.int64)
        case PixelDecoder():
            return pixels
        case MaskTokens() | PixelMasks():
            return torch.zeros(rows, height, width, dtype=torch.int64)
    return None
