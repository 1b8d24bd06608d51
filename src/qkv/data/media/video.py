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
from .audio_length import TRUNCATED, UNKNOWN_SIZE, ogg_streams
from .images import MOST_PIXELS, Color, Fit, Pixels, Size, content, fitted, pages

Frames = NDArray[np.uint8]
"""(T, C, H, W), 0 … 255."""

SUFFIXES = frozenset(
    f".{name}" for name in ["mp4", "m4v", "mov", "webm", "mkv", "avi", "mpg", "mpeg", "flv", "ogv", "3gp"]
)
_FIRST_BYTES = (b"\x1a\x45\xdf\xa3", b"\0\0\1\xba", b"\0\0\1\xb3", b"FLV", b"OggS")  # the first is Matroska's
_MOST_PARTS = 1 << 20  # of a file, such as the frames of an FLV
_HEADS = 1 << 10  # bytes in which the first pages of an Ogg file's streams lie


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


def is_container(data: bytes) -> bool:
    """Whether data are a video container: MP4, MOV, WebM, Matroska, AVI, MPEG, FLV or Ogg; AVIF is a picture."""
    if data[4:8] == b"ftyp":
        return data[8:12] not in (b"avif", b"avis", b"mif1", b"heic", b"heix")
    return data.startswith(_FIRST_BYTES) or (data[:4] == b"RIFF" and data[8:12] == b"AVI ")


def is_ogg_video(data: bytes) -> bool:
    """Whether an Ogg file begins with a stream of pictures: Theora, VP8 or Dirac."""
    return data.startswith(b"OggS") and any(name in data[:_HEADS] for name in (b"\x80theora", b"OVP80", b"BBCD"))


def is_cut(data: bytes) -> bool:
    """Whether a container is shorter than it states. FFmpeg decodes the remaining frames without an error, and for most
    containers only estimates the number of frames. MPEG program streams and files written to a pipe state no length."""
    if data.startswith(b"OggS"):
        return not ogg_streams(data)
    if data.startswith(b"RIFF"):
        size = int.from_bytes(data[4:8], "little")
        return len(data) < size < UNKNOWN_SIZE  # some programs count the 8 bytes before it, too
    if data.startswith(_FIRST_BYTES[0]):
        return len(data) < _matroska_end(data)
    if data.startswith(b"FLV"):
        return len(data) < _end(data, int.from_bytes(data[5:9], "big") + 4, _flv_tag)
    return data[4:8] == b"ftyp" and len(data) < _end(data, 0, _mp4_box)


def _end(data: bytes, at: int, size_of: Callable[[bytes], int]) -> int:
    """Return the offset at which the last part of a file ends, or 0 if there are too many parts. `size_of` reads the size of
    a part from its header."""
    for _ in range(_MOST_PARTS):
        if at >= len(data):
            return at
        at += size_of(data[at : at + 16]) or len(data) - at
    return 0


def _mp4_box(head: bytes) -> int:
    """Return the bytes of a box of MP4 (ISO 14496-12, section 4.2), or 0 if it extends to the end of the file."""
    size = int.from_bytes(head[:4], "big")
    size = int.from_bytes(head[8:16], "big") if size == 1 else size
    return size if size >= 8 else 0


def _flv_tag(head: bytes) -> int:
    return 11 + int.from_bytes(head[1:4], "big") + 4


def _matroska_end(data: bytes) -> int:
    """Return the offset at which the segment of a Matroska file ends (RFC 8794, section 6), or 0 if it is not stated."""
    at = 4 + _vint(data[4:12])[0] + _vint(data[4:12])[1]
    if data[at : at + 4] != b"\x18\x53\x80\x67":
        return 0
    length, size = _vint(data[at + 4 : at + 12])
    return 0 if size == (1 << 7 * length) - 1 else at + 4 + length + size


def _vint(head: bytes) -> tuple[int, int]:
    """Decode a variable-size integer (RFC 8794, section 4). Return its number of bytes and its value."""
    length = 9 - head[0].bit_length() if head and head[0] else 1
    return length, int.from_bytes(head[:length], "big") & (1 << 7 * length) - 1


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
