"""Videos as arrays (T, C, H, W): decoded from files, sampled, resized, and cut into tubelets."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..optional_libraries import optional_library
from ..source import Skipped
from .images import MOST_PIXELS, Color, Fit, Pixels, Size, content, fitted, pages

Frames = NDArray[np.uint8]
"""(T, C, H, W), 0 … 255."""

SUFFIXES = frozenset(
    f".{name}" for name in ["mp4", "m4v", "mov", "webm", "mkv", "avi", "mpg", "mpeg", "flv", "ogv", "3gp"]
)
_CONTAINERS = (b"\x1a\x45\xdf\xa3", b"\0\0\1\xba", b"\0\0\1\xb3", b"FLV", b"OggS")  # the first bytes of files


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
    """Decode the frames of a video (MP4, MOV, WebM, AVI and others, with PyAV), of an animated GIF, WebP or PNG, or the
    pages of a TIFF; or return why it is skipped.

    Of a video with more than `most` pixels in all, every second, fourth … frame is kept. Raises ValueError if PyAV is needed
    and not installed.
    """
    if _is_container(data):
        return _decode_container(data, color, most, where)
    frames = pages(data, color, most, bits, where)
    if isinstance(frames, Skipped):
        return frames
    if len({frame.shape for frame in frames}) > 1:
        return Skipped("of frames that differ in size")
    return np.stack(frames)


def _is_container(data: bytes) -> bool:
    """Whether data are a video container: MP4, MOV, WebM, Matroska, AVI, MPEG, FLV or Ogg; AVIF is a picture."""
    if data[4:8] == b"ftyp":
        return data[8:12] not in (b"avif", b"avis", b"mif1", b"heic", b"heix")
    return data.startswith(_CONTAINERS) or (data[:4] == b"RIFF" and data[8:12] == b"AVI ")


def _decode_container(data: bytes, color: Color, most: int, where: str) -> Frames | Skipped:
    av = optional_library("video", f"reading {where!r}", "av")
    frames: list[Pixels] = []
    step = 1  # of every so many frames, one is kept
    try:
        with av.open(io.BytesIO(data)) as file:
            for n, frame in enumerate(file.decode(video=0)):
                if (len(frames) + 1) * frame.width * frame.height > most and n % step == 0:
                    frames, step = frames[::2], 2 * step
                if frame.width * frame.height > most:
                    return Skipped(f"larger than {most:,} pixels")
                if n % step == 0:
                    pixels = frame.to_ndarray(format="gray" if color == "gray" else "rgb24")
                    frames.append(pixels[None] if color == "gray" else pixels.transpose(2, 0, 1))
    except (av.FFmpegError, IndexError) as error:  # IndexError: there is a sound alone
        return Skipped(
            f"no video that can be read ({'no picture in it' if isinstance(error, IndexError) else 'damaged'})"
        )
    if len({frame.shape for frame in frames}) != 1:
        return Skipped("of frames that differ in size" if frames else "without a frame")
    return np.stack(frames)


def read(path: str | Path, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16) -> Frames:
    """Read the frames of a file. Raises ValueError that names the file if it can't be read."""
    frames = decode_frames(content(path), color, most, bits, str(path))
    if isinstance(frames, Skipped):
        raise ValueError(f"{str(path)!r} can't be read as a video: it is {frames}")
    return frames
