"""Containers of videos: which files are one, whether one ends early, and its sound track (with PyAV)."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...core.optional_libraries import optional_library
from ...core.spec import brief
from ..source import Skipped
from .audio_length import TRUNCATED, ogg_streams

_FIRST_BYTES = (b"\x1a\x45\xdf\xa3", b"\0\0\1\xba", b"\0\0\1\xb3", b"FLV", b"OggS")  # the first is Matroska's
_MOST_PARTS = 1 << 20  # of a file, such as the frames of an FLV
_HEADS = 1 << 10  # bytes in which the first pages of an Ogg file's streams lie
_UNKNOWN = 0x7FFF_F000  # the size of a file that was written to a pipe is this or more


def is_container(data: bytes) -> bool:
    """Whether data are a video container: MP4, MOV, WebM, Matroska, AVI, MPEG, FLV or Ogg; AVIF is a picture."""
    if data[4:8] == b"ftyp":
        return data[8:12] not in (b"avif", b"avis", b"mif1", b"heic", b"heix")
    return data.startswith(_FIRST_BYTES) or (data[:4] == b"RIFF" and data[8:12] == b"AVI ")


def is_ogg_video(data: bytes) -> bool:
    """Whether an Ogg file begins with a stream of pictures: Theora, VP8 or Dirac."""
    return data.startswith(b"OggS") and any(name in data[:_HEADS] for name in (b"\x80theora", b"OVP80", b"BBCD"))


def is_cut(data: bytes) -> bool:
    """Whether a container ends before the end that it states. FFmpeg would decode the frames that are left, and its number
    of frames is an estimate in most containers. MPEG program streams, and what was written to a pipe, state no end."""
    if data.startswith(b"OggS"):
        return not ogg_streams(data)
    if data.startswith(b"RIFF"):
        size = int.from_bytes(data[4:8], "little")
        return len(data) < size < _UNKNOWN  # some programs count the 8 bytes before it, too
    if data.startswith(_FIRST_BYTES[0]):
        return len(data) < _matroska_end(data)
    if data.startswith(b"FLV"):
        return len(data) < _end(data, int.from_bytes(data[5:9], "big") + 4, _flv_tag)
    return data[4:8] == b"ftyp" and len(data) < _end(data, 0, _mp4_box)


def _end(data: bytes, at: int, size_of: Callable[[bytes], int]) -> int:
    """Where the last part of a file ends, 0 if there are too many; `size_of` reads the size of a part from its header."""
    for _ in range(_MOST_PARTS):
        if at >= len(data):
            return at
        at += size_of(data[at : at + 16]) or len(data) - at
    return 0


def _mp4_box(head: bytes) -> int:
    """The bytes of a box of MP4 (ISO 14496-12, section 4.2); 0 if it extends to the end of the file."""
    size = int.from_bytes(head[:4], "big")
    size = int.from_bytes(head[8:16], "big") if size == 1 else size
    return size if size >= 8 else 0


def _flv_tag(head: bytes) -> int:
    return 11 + int.from_bytes(head[1:4], "big") + 4


def _matroska_end(data: bytes) -> int:
    """Where the segment of a Matroska file ends (RFC 8794, section 6); 0 if it doesn't say so."""
    at = 4 + _vint(data[4:12])[0] + _vint(data[4:12])[1]
    if data[at : at + 4] != b"\x18\x53\x80\x67":
        return 0
    length, size = _vint(data[at + 4 : at + 12])
    return 0 if size == (1 << 7 * length) - 1 else at + 4 + length + size


def _vint(head: bytes) -> tuple[int, int]:
    """The length and the value of a number of variable length."""
    length = 9 - head[0].bit_length() if head and head[0] else 1
    return length, int.from_bytes(head[:length], "big") & (1 << 7 * length) - 1


def sound_of(data: bytes, most: int, where: str = "a video") -> tuple[NDArray[np.float32], int] | Skipped:
    """Decode the first sound track of a container, with PyAV: the waveform and its sample rate, or why it is skipped.
    Channels are averaged; a sound of more than `most` samples is skipped. Raises ValueError if PyAV isn't installed."""
    av = optional_library(f"reading the sound of {brief(where)}", "av")
    if is_cut(data):
        return TRUNCATED
    parts: list[NDArray[np.float32]] = []
    length = 0
    try:
        with av.open(io.BytesIO(data)) as file:
            if not file.streams.audio:
                return Skipped("a video without sound")
            rate: int = file.streams.audio[0].rate
            to_floats = av.AudioResampler(format="fltp", rate=rate)
            for frame in itertools.chain(file.decode(audio=0), [None]):
                new = [part.to_ndarray().mean(0) for part in to_floats.resample(frame)]
                parts, length = parts + new, length + sum(map(len, new))
                if length > most:
                    return Skipped(f"longer than {most:,} samples")
    except (av.FFmpegError, ValueError, MemoryError) as error:
        return Skipped(f"no sound that can be read ({str(error).rpartition('] ')[2].split(':')[0] or 'damaged'})")
    wave = np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)
    return (wave, rate) if len(wave) else Skipped("without sound")
