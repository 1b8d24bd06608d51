"""Lengths that sound files state wrongly, estimate, or leave out, put right before libsndfile reads the files.

libsndfile takes the length of MPEG audio (MP3) from its Xing or Info tag, and without one estimates it from the size of the
first frame; samples beyond the estimate are never decoded. FLAC and CAF files that were written to a pipe have no length.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ..source import Skipped

TRUNCATED = Skipped("truncated")
UNKNOWN_SIZE = 0x7FFF_F000
"""The smallest size that means "unknown": programs write such a size if they write to a pipe."""
_PAGE = struct.Struct(
    "<4sBBqIIIB"
)  # an Ogg page (RFC 3533): capture, version, flags, granule, serial, number, sum, segments
_FIRST, _LAST = 2, 4  # flags of a stream's first and last page


class Sized(NamedTuple):
    """A sound file whose stated length is right, and its number of samples if the file can't state it."""

    data: bytes
    samples: int | None = None


def with_length(data: bytes) -> Sized | Skipped:
    """A sound file that states its length, or why it is skipped; files that state it already are returned as they are."""
    if data.startswith(b"fLaC"):
        return Sized(_with_flac_length(data))
    if data.startswith(b"caff"):
        return Sized(_with_caf_length(data))
    if data[:4] in (b"RIFF", b"RIFX", b"FORM", b"OggS", b"RF64", b"riff", b".snd"):
        return _of_riff(data) if data[:4] == b"RIFF" else Sized(data)
    return _of_mpeg(data)


def ogg_streams(data: bytes) -> list[bytes]:
    """The streams of an Ogg file that follow one another, of which libsndfile reads the first only (RFC 3533, section 4).

    Empty if the last page is incomplete, or not marked as the end.
    """
    begins, at, ended = [0], 0, False
    while data.startswith(b"OggS", at) and len(data) - at >= _PAGE.size:
        _, _, flags, _, _, _, _, segments = _PAGE.unpack_from(data, at)
        if ended and flags & _FIRST:
            begins.append(at)
        table = data[at + _PAGE.size : at + _PAGE.size + segments]
        ended = bool(flags & _LAST)
        at += _PAGE.size + segments + sum(table)
        if at > len(data):
            return []
    return [data[begin:end] for begin, end in pairwise((*begins, len(data)))] if ended else []


# -- MPEG audio (ISO 11172-3, 13818-3) ---------------------------------------------------------------------------------

_RATES = {
    3: (44_100, 48_000, 32_000),
    2: (22_050, 24_000, 16_000),
    0: (11_025, 12_000, 8_000),
}  # by the bits of a version
_KBITS = {  # per second, by MPEG-1 or later and layer
    (True, 1): tuple(range(32, 449, 32)),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_LONGEST_GAP = 1 << 16  # bytes between frames that are skipped: pictures and texts of a tag in the middle
_MARGIN, _FIRST_FRAMES = (
    1.1,
    4,
)  # an estimate of the length is that of a file in which all frames are like the first ones
_AFTER = 1 << 10  # bytes after the last frame: a tag of the title


class _Kind(NamedTuple):
    """What the header of a frame says: the bytes and the samples of the frame, its layer, whether it is of MPEG-1, and the
    place of a tag in it, after the side information of layer III. Frames of one stream have the same `stream`."""

    size: int
    samples: int
    layer: int
    first: bool
    side: int
    stream: tuple[int, int]


class _Frame(NamedTuple):
    begin: int
    end: int
    kind: _Kind


@lru_cache(maxsize=1024)
def _kind(head: bytes) -> _Kind | None:
    """The kind of a frame by its first four bytes; None if they are no header, or one of a free bit rate."""
    if len(head) < 4 or head[0] != 0xFF or head[1] < 0xE0:
        return None
    version, layer, kbits, rate = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3), head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or layer == 4 or kbits in (0, 15) or rate == 3:
        return None
    first, padding, mono = version == 3, head[2] >> 1 & 1, head[3] >> 6 == 3
    bits, hertz = 1000 * _KBITS[first, layer][kbits - 1], _RATES[version][rate]
    samples = 384 if layer == 1 else 576 if layer == 3 and not first else 1152
    size = (12 * bits // hertz + padding) * 4 if layer == 1 else samples // 8 * bits // hertz + padding
    side = 4 + ((17 if mono else 32) if first else (9 if mono else 17))
    return _Kind(size, samples, layer, first, side, (head[1] & 0xFE, head[2] & 0x0C))


def _frame(data: bytes, at: int) -> _Frame | None:
    """The frame whose header is at this place, if there is one."""
    kind = _kind(data[at : at + 4])
    return None if kind is None else _Frame(at, at + kind.size, kind)


def _frames(data: bytes, at: int) -> Iterator[_Frame]:
    """The frames from the first on, also one that ends beyond the data; what is between them is left out."""
    frame = _frame(data, at)
    while frame is not None:
        yield frame
        stream, at = frame.kind.stream, frame.end
        frame = _frame(data, at)
        if frame is None or frame.kind.stream != stream:
            frame = _found(data, at, stream)


def _found(data: bytes, at: int, stream: tuple[int, int]) -> _Frame | None:
    """The next frame of a stream after other bytes: one that another follows."""
    for match in _sync(stream[0]).finditer(data, at, min(len(data), at + _LONGEST_GAP)):
        frame = _frame(data, match.start())
        after = None if frame is None else _frame(data, frame.end)
        if frame and after and frame.kind.stream == after.kind.stream == stream:
            return frame
    return None


@lru_cache(maxsize=16)
def _sync(second: int) -> re.Pattern[bytes]:
    """The first two bytes of a stream's frames, with a checksum or without."""
    return re.compile(b"\xff[%b%b]" % (re.escape(bytes([second])), re.escape(bytes([second | 1]))))


class _Tag(NamedTuple):
    """What a tag states: the number of frames after it and of bytes from it on; 0 if it states none."""

    frames: int
    size: int


def _of_mpeg(data: bytes) -> Sized | Skipped:
    """MPEG audio with its number of samples, unless a tag states it. Other data are returned as they are.

    Copies of a frame are put at the end, so the length that libsndfile estimates is no less than the true one.
    """
    at = 0
    while data.startswith(b"ID3", at) and len(data) >= at + 10:
        at += 10 + sum((byte & 0x7F) << 7 * (3 - i) for i, byte in enumerate(data[at + 6 : at + 10]))
    begin = _frame(data, at)
    tag = None if begin is None else _tag(data, begin)
    if tag is not None and tag.frames and 0 <= len(data) - at - tag.size <= _AFTER:
        return Sized(data)  # without reading all frames
    frames = list(_frames(data, at))
    if len(frames) < 2:
        return Sized(data)
    tags = [found for frame in frames if (found := _tag(data, frame)) is not None]
    sounds = [frame for frame in frames if _tag(data, frame) is None] if tags else frames
    whole = bool(sounds) and sounds[-1].end <= len(data)
    if whole and tag is not None and len(tags) == 1 and tag.frames == len(sounds):
        return Sized(data)
    stated = sum(
        one.frames - 1 for one in tags
    )  # of all files, if several were joined; some programs count the tag, too
    if not whole or len(sounds) < stated:
        return TRUNCATED
    samples = sum(frame.kind.samples for frame in sounds)
    joined = b"".join(data[frame.begin : frame.end] for frame in sounds)
    longest = max(sounds, key=lambda frame: frame.kind.size)
    estimated = _MARGIN * len(sounds) * max(frame.kind.size for frame in sounds[:_FIRST_FRAMES])
    more = 1 + int(max(0, estimated - len(joined)) // longest.kind.size)
    return Sized(joined + data[longest.begin : longest.end] * more, samples)


def _tag(data: bytes, frame: _Frame) -> _Tag | None:
    """The tag in a frame; None if the frame holds sound."""
    if frame.kind.layer != 3:
        return None
    place = frame.begin + frame.kind.side
    if data[place : place + 4] in (b"Xing", b"Info"):
        flags, first, second = struct.unpack(">III", data[place + 4 : place + 16].ljust(12, b"\0"))
        numbers = iter((first, second))
        return _Tag(*(next(numbers) if flags & flag else 0 for flag in (1, 2)))
    place = frame.begin + 36  # Fraunhofer's, wherever the side information ends
    if data[place : place + 4] != b"VBRI":
        return None
    size, count = struct.unpack(">II", data[place + 10 : place + 18].ljust(8, b"\0"))
    return _Tag(count, size)


# -- other formats -----------------------------------------------------------------------------------------------------


def _of_riff(data: bytes) -> Sized | Skipped:
    """MPEG audio in a WAV file (format 0x55 or 0x50) without its wrapping; other WAV files as they are."""
    at, form = 12, 0
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"fmt ":
            form = int.from_bytes(data[at + 8 : at + 10], "little")
        if name == b"data":
            return _of_mpeg(data[at + 8 :][:size]) if form in (0x50, 0x55) else Sized(data)
        at += 8 + size + size % 2
    return Sized(data)


def _with_flac_length(data: bytes) -> bytes:
    """FLAC with its number of samples (RFC 9639, section 8.2), which is that of the last frame and all before it."""
    if len(data) < 42 or int.from_bytes(data[21:26], "big") & (1 << 36) - 1:
        return data
    sizes, at = int.from_bytes(data[8:10], "big"), len(data)
    while (at := data.rfind(b"\xff", 42, at)) > 0:
        count = _flac_samples(data[at : at + 16], sizes)
        if count:
            stated = int.from_bytes(data[21:26], "big") | count & (1 << 36) - 1
            return data[:21] + stated.to_bytes(5, "big") + data[26:]
    return data


def _flac_samples(head: bytes, size: int) -> int:
    """The number of samples up to the end of the frame with this header (RFC 9639, section 9.1); 0 if it is no header."""
    if len(head) < 16 or head[1] & 0xFE != 0xF8 or head[2] >> 4 == 0 or head[2] & 15 == 15 or head[3] & 1:
        return 0
    length = 8 - (head[4] ^ 0xFF).bit_length() if head[4] >= 0xC0 else 1  # of a number in the manner of UTF-8
    number = head[4] & (0x7F >> length if length > 1 else 0x7F)
    for byte in head[5 : 4 + length]:
        number = number << 6 | byte & 0x3F
    at, code, rate = 4 + length, head[2] >> 4, head[2] & 15
    more = {6: 1, 7: 2}.get(code, 0)
    own = int.from_bytes(head[at : at + more], "big") + 1
    if not more:
        own = 192 if code == 1 else 576 << code - 2 if code < 6 else 256 << code - 8
    at += more + {12: 1, 13: 2, 14: 2}.get(rate, 0)
    if at >= len(head) or _crc8(head[:at]) != head[at]:
        return 0
    return (number if head[1] & 1 else number * size) + own


def _crc8(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc << 1 & 0xFF ^ (7 if crc & 0x80 else 0)
    return crc


def _with_caf_length(data: bytes) -> bytes:
    """CAF with the size of its last chunk, which is −1 if nobody knew it."""
    at = 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 12], "big", signed=True)
        if size == -1 and data[at : at + 4] == b"data":
            return data[: at + 4] + (len(data) - at - 12).to_bytes(8, "big") + data[at + 12 :]
        at += 12 + max(size, 0)
    return data
