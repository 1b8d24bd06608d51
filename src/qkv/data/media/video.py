"""Videos as arrays (T, C, H, W): decoded from animated files, sampled, resized, and cut into tubelets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..source import Skipped
from .images import MOST_PIXELS, Color, Fit, Pixels, Size, content, fitted, pages

Frames = NDArray[np.uint8]
"""(T, C, H, W), 0 … 255."""


def tubelets(frames: Frames, depth: int) -> Pixels:
    """(depth · C, T / depth · H, W): the frames of a tubelet as channels, tubelets of later frames below earlier ones.

    Patches of p × p pixels of this array are tubelets of depth × p × p, each with its own place in time and space, so that
    image patches and positions work for videos (the tubelet embedding of ViViT, Arnab et al. 2021, §3.2).
    """
    t, channels, height, width = frames.shape
    grouped = frames.reshape(t // depth, depth * channels, height, width)
    return np.ascontiguousarray(grouped.swapaxes(0, 1).reshape(depth * channels, t // depth * height, width))


def evenly(frames: Frames, count: int) -> Frames:
    """Sample `count` frames evenly; frames are repeated if there are too few."""
    n = len(frames)
    return frames[[(2 * i + 1) * n // (2 * count) for i in range(count)]]


def resized(frames: Frames, size: Size, fit: Fit = "crop") -> Frames:
    """Resize each frame, see `images.fitted`."""
    return frames if frames.shape[2:] == tuple(size) else np.stack([fitted(frame, size, fit) for frame in frames])


def decode_frames(
    data: bytes, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16, where: str = "a video"
) -> Frames | Skipped:
    """Decode the frames of an animated GIF, WebP or PNG, or the pages of a TIFF, of `most` pixels in all; or return why it
    is skipped."""
    frames = pages(data, color, most, bits, where)
    if isinstance(frames, Skipped):
        return frames
    if len({frame.shape for frame in frames}) > 1:
        return Skipped("of frames that differ in size")
    return np.stack(frames)


def read(path: str | Path, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16) -> Frames:
    """Read the frames of a file. Raises ValueError that names the file if it can't be read."""
    frames = decode_frames(content(path), color, most, bits, str(path))
    if isinstance(frames, Skipped):
        raise ValueError(f"{str(path)!r} can't be read as a video: it is {frames}")
    return frames
