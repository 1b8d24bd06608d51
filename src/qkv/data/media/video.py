"""Videos as arrays (T, C, H, W): decoded from files, sampled, resized, and cut into tubelets."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.optional_libraries import optional_library
from ...core.spec import brief
from ..source import Skipped
from .audio_length import TRUNCATED, is_container, is_cut
from .images import MOST_PIXELS, Color, Fit, Pixels, Size, content, fitted, pages

Frames = NDArray[np.uint8]
"""(T, C, H, W), 0 … 255."""

SUFFIXES = frozenset(
    f".{name}" for name in ["mp4", "m4v", "mov", "webm", "mkv", "avi", "mpg", "mpeg", "flv", "ogv", "3gp"]
)


def tubelets(frames: Frames, depth: int) -> Pixels:
    """(depth · C, T / depth · H, W): the frames of a tubelet as channels, tubelets of later frames below earlier ones.

    Patches of p × p pixels of this array are tubelets of depth × p × p, each with its own place in time and space.
    Image patches and positions therefore work for videos (the tubelet embedding of ViViT, Arnab et al. 2021, §3.2).
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
    if is_container(data):
        return _decode_container(data, color, most, where)
    frames = pages(data, color, most, bits, where)
    if isinstance(frames, Skipped):
        return frames
    if len({frame.shape for frame in frames}) > 1:
        return Skipped("of frames that differ in size")
    return np.stack(frames)


def _decode_container(data: bytes, color: Color, most: int, where: str) -> Frames | Skipped:
    av = optional_library(f"reading {brief(where)}", "av")
    if is_cut(data):
        return TRUNCATED
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
                    frames.append(_pixels(frame, color))
    except (av.FFmpegError, IndexError) as error:  # IndexError: there is a sound alone
        return Skipped(
            f"no video that can be read ({'no picture in it' if isinstance(error, IndexError) else 'damaged'})"
        )
    if len({frame.shape for frame in frames}) != 1:
        return Skipped("of frames that differ in size" if frames else "without a frame")
    return np.stack(frames)


class Sampled(NamedTuple):
    """Pictures of a video: their indices among all, how many the video has, and how many in a second."""

    pictures: list[Any]
    indices: list[int]
    total: int
    rate: float


def sampled(
    data: bytes,
    choose: Callable[[int, float], Sequence[int]],
    keep: Callable[[Pixels, int], Any],
    color: Color = "rgb",
    where: str = "a video",
) -> Sampled | Skipped:
    """Decode the pictures of a container, with PyAV, whose indices `choose` gives by their number and their rate, in
    increasing order; or return why it is skipped. `keep` makes of each what is kept, and is told how many there are.

    Pictures are counted if the file doesn't say how many there are, or says more. Raises ValueError if PyAV is needed and
    not installed.
    """
    av = optional_library(f"reading {brief(where)}", "av")
    if not is_container(data) and data[:3] != b"GIF":
        return Skipped("no video that can be read")
    if is_cut(data):
        return TRUNCATED
    try:
        with av.open(io.BytesIO(data)) as file:
            stream = file.streams.video[0]
            total, rate = stream.frames, float(stream.average_rate or stream.guessed_rate or 0)
        for count in (total, None):
            with av.open(io.BytesIO(data)) as file:
                count = count or sum(1 for _ in file.decode(video=0))
            if not count or not rate:
                return Skipped("without a frame" if rate else "without a number of frames in a second")
            indices = list(choose(count, rate))
            with av.open(io.BytesIO(data)) as file:
                pictures = [keep(pixels, len(indices)) for pixels in _chosen(file, {*indices}, color)]
            if len(pictures) == len({*indices}):
                return Sampled(pictures, indices, count, rate)
    except (av.FFmpegError, IndexError) as error:  # IndexError: there is a sound alone
        return Skipped(
            f"no video that can be read ({'no picture in it' if isinstance(error, IndexError) else 'damaged'})"
        )
    return Skipped("no video that can be read (damaged)")


def _chosen(file: Any, indices: set[int], color: Color) -> Iterator[Pixels]:
    last = max(indices, default=-1)
    for i, frame in enumerate(file.decode(video=0)):
        if i > last:
            return
        if i in indices:
            yield _pixels(frame, color)


def _pixels(frame: Any, color: Color) -> Pixels:
    """The pixels (C, H, W) of a picture of a video, as it is to be seen."""
    pixels = frame.to_ndarray(format="gray" if color == "gray" else "rgb24")
    pixels = np.rot90(pixels, round(frame.rotation / 90)) if frame.rotation else pixels
    return pixels[None] if color == "gray" else pixels.transpose(2, 0, 1)


def read(path: str | Path, color: Color = "rgb", most: int = MOST_PIXELS, bits: int = 16) -> Frames:
    """Read the frames of a file. Raises ValueError that names the file if it can't be read."""
    frames = decode_frames(content(path), color, most, bits, str(path))
    if isinstance(frames, Skipped):
        raise ValueError(f"{brief(path)} can't be read as a video: it is {frames}")
    return frames
