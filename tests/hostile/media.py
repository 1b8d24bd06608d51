"""Pictures, videos, sounds, pieces of music and arrays that are broken or made to exhaust memory: by hand (`bombs`), and by
chance (`mutants`).

`check` reads many of them in a process of limited memory; run this file to do that: `COUNT [SEED]`. Each must be read, or be
refused with a reason: a `Skipped` of the reader, or a ValueError.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SECONDS = 20  # for one file, on a busy machine
GROWTH = 2 << 30  # bytes that the process may grow by; 64 million pixels of a picture are 0.6 GiB of these
PICTURES = ("PNG", "GIF", "TIFF", "JPEG", "WEBP", "BMP", "JPEG2000", "TGA", "ICO", "PPM", "DDS", "QOI")
SOUNDS = (
    ("WAV", "PCM_16"),
    ("WAV", "FLOAT"),
    ("WAVEX", "PCM_24"),
    ("FLAC", "PCM_16"),
    ("OGG", "VORBIS"),
    ("AIFF", "PCM_16"),
)
_WORDS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)


class File(NamedTuple):
    """Bytes, what they are made of, and how they are to be read: "picture", "sound", "midi" or "idx"."""

    name: str
    kind: str
    data: bytes


@cache
def whole() -> tuple[File, ...]:
    """A small file of every kind, each of which is read."""
    import soundfile
    from PIL import Image

    from qkv.data.media.midi import to_midi

    random_ = np.random.default_rng(0)
    frames = [Image.fromarray(random_.integers(0, 256, (17, 23, 3), np.uint8)) for _ in range(3)]
    found = []
    for name in PICTURES:
        file = io.BytesIO()
        several = {"save_all": True, "append_images": frames[1:]} if name in ("PNG", "GIF", "TIFF", "WEBP") else {}
        frames[0].save(file, name, **several)
        found.append(File(name, "picture", file.getvalue()))
    deep = io.BytesIO()
    Image.fromarray(random_.integers(0, 65536, (9, 11), np.uint16)).save(deep, "TIFF")
    found.append(File("TIFF of 16 bits", "picture", deep.getvalue()))
    for kind, coding in (*SOUNDS, ("MP3", "MPEG_LAYER_III")):
        file = io.BytesIO()
        soundfile.write(file, random_.normal(0, 0.1, (900, 1 + (kind == "WAV"))), 8000, coding, format=kind)
        found.append(File(f"{kind} {coding}", "sound", file.getvalue()))
    found.append(File("MIDI", "midi", to_midi([(60, 64), (62,), (), (65, 60, 50)] * 8, 2)))
    found.append(File("IDX", "idx", b"\0\0\x08\x03" + struct.pack(">3I", 4, 5, 6) + bytes(120)))
    return tuple(found)


def mutants(seed: int, n: int) -> Iterator[File]:
    """Files cut short, with bytes turned, sizes overwritten, parts left out, doubled, or taken from another file."""
    chance = random.Random(seed)
    for i in range(n):
        name, kind, data = chance.choice(whole())
        made = bytearray(data)
        hows = chance.choices(_HOWS, k=chance.choice((1, 1, 2, 4)))
        for how in hows:
            how(made, chance)
        yield File(f"{name}, mutant {i}: {', '.join(how.__name__.strip('_') for how in hows)}", kind, bytes(made))


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _turned(data: bytearray, chance: random.Random) -> None:
    for _ in range(min(len(data), chance.choice((1, 3, 30)))):
        data[_place(data, chance)] ^= 1 << chance.randrange(8)


def _overwritten(data: bytearray, chance: random.Random) -> None:
    """A number of 1, 2 or 4 bytes, as sizes are."""
    size, order = chance.choice((1, 2, 4)), chance.choice(("<", ">"))
    word = chance.choice(_WORDS) & (1 << 8 * size) - 1
    at = _place(data, chance) if data else 0
    data[at : at + size] = struct.pack(order + {1: "B", 2: "H", 4: "I"}[size], word)


def _left_out(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    del data[at : at + chance.choice((1, 4, 50))]


def _doubled(data: bytearray, chance: random.Random) -> None:
    at, size = chance.randrange(len(data) + 1), chance.choice((4, 40, 400))
    data[at:at] = data[at : at + size] * chance.choice((1, 20))


def _spliced(data: bytearray, chance: random.Random) -> None:
    other = chance.choice(whole()).data
    at = chance.randrange(len(data) + 1)
    data[at:] = other[chance.randrange(len(other)) :]


_HOWS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_cut, _turned, _overwritten, _overwritten, _left_out, _doubled, _spliced),
)


def _place(data: bytearray, chance: random.Random) -> int:
    """Half of the time in the header."""
    return chance.randrange(min(len(data), 64) if chance.random() < 0.5 else len(data))


# -- by hand -----------------------------------------------------------------------------------------------------------


def bombs() -> Iterator[File]:
    for width, height in ((64 << 20, 1), (1, 64 << 20), (60_000, 60_000), (0xFFFF_FFFF, 1)):
        yield File(f"a PNG of {width} × {height}", "picture", _png(width, height))
    yield File("a GIF of 100,000 frames", "picture", _gif(100_000))
    yield File(
        "a TIFF whose pages go round", "picture", b"II*\0\x08\0\0\0" + struct.pack("<HHHIII", 1, 256, 4, 1, 1, 8)
    )
    yield File("DDS of no known kind", "picture", b"DDS " + struct.pack("<7I", 124, 0x1007, 4, 4, 0, 0, 0) + bytes(300))
    yield File("PostScript", "picture", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{} loop\n")
    for rate, channels in ((0x7FFF_FFFF, 1), (1, 1), (8000, 1024), (8000, 0xFFFF), (0, 0)):
        yield File(f"a WAV file of {rate} Hz and {channels} channels", "sound", _wav(rate, channels))
    yield File("MIDI of 65,535 tracks", "midi", _midi(*[b"\0\x90\x3c\x40\xbf\xff\x7f\xff\x2f\0"] * 65_535))
    yield File("MIDI with pauses of 2^28", "midi", _midi(b"\xff\xff\xff\x7f\x90\x3c\x40" * 1000 + b"\0\xff\x2f\0"))
    yield File("MIDI with an endless number", "midi", _midi(b"\0\x90\x3c\x40" + b"\xff" * 1_000_000))
    yield File("an IDX file of 2^96 bytes", "idx", b"\0\0\x08\x03" + b"\xff" * 12)
    yield File("an IDX file of 255 axes", "idx", b"\0\0\x08\xff" + struct.pack(">I", 1) * 255 + b"\0")


def _png(width: int, height: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    pixels = zlib.compress(bytes(min(width * height * 3, 300_000_000)), 1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _gif(frames: int) -> bytes:
    frame = b",\0\0\0\0\1\0\1\0\0\2\2L\1\0"
    return b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff" + frame * frames + b";"


def _wav(rate: int, channels: int) -> bytes:
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2 & 0xFFFF_FFFF, channels * 2 & 0xFFFF, 16)
    return (
        b"RIFF" + struct.pack("<I", 4132) + b"WAVEfmt " + struct.pack("<I", 16) + form + b"data\0\x10\0\0" + bytes(4096)
    )


def _midi(*tracks: bytes) -> bytes:
    parts = (b"MTrk" + struct.pack(">I", len(track)) + track for track in tracks)
    return b"MThd" + struct.pack(">IHHH", 6, 1, len(tracks), 96) + b"".join(parts)


# -- reading them ------------------------------------------------------------------------------------------------------


def use(file: Path, kind: str) -> str:
    """What comes of a file: "works", or "refused: …"; "crash: …" for anything but a reason."""
    try:
        return "; ".join(one(file) for one in _READERS[kind])
    except Exception as error:
        return f"crash: {type(error).__name__}: {error}"


def _reader(read: Callable[[Path], Any]) -> Callable[[Path], str]:
    def reading(file: Path) -> str:
        from qkv.data.source import Skipped

        try:
            found = read(file)
        except ValueError as error:
            return f"refused: {error}" if "\n" not in str(error) else f"crash: more than a line: {error}"
        return f"refused: {found}" if isinstance(found, Skipped) else "works"

    return reading


def _picture(file: Path) -> Any:
    from qkv.data.media.images import decode

    return decode(file.read_bytes())


def _video(file: Path) -> Any:
    from qkv.data.media.video import decode_frames

    return decode_frames(file.read_bytes(), "gray")


def _mask(file: Path) -> Any:
    from qkv.data.readers.segmentation_masks import read_mask

    return read_mask(file)


def _sound(file: Path) -> Any:
    from qkv.data.media.audio import decode

    return decode(file.read_bytes())


def _music(file: Path) -> Any:
    from qkv.data.media.midi import read

    return read(file, 4)


def _idx(file: Path) -> Any:
    from qkv.data.readers.mnist_idx import _read_idx

    return _read_idx(file)


_READERS = {
    "picture": [_reader(_picture), _reader(_video), _reader(_mask)],
    "sound": [_reader(_sound)],
    "midi": [_reader(_music)],
    "idx": [_reader(_idx)],
}


def check(files: list[File]) -> list[tuple[str, float]]:
    """What came of each, and after how many seconds; one that ends the process has "crash"."""
    found: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for i, (_, kind, data) in enumerate(files):
            (Path(folder) / f"{i:07}.{kind}").write_bytes(data)
        while len(found) < len(files):
            command = [sys.executable, __file__, "--try", folder, str(len(found))]
            done = subprocess.run(
                command,
                env=os.environ | {"PYTHONWARNINGS": "ignore"},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            found += [(how, seconds) for how, seconds in map(json.loads, done.stdout.decode().splitlines())]
            if len(found) < len(files):
                found.append((f"crash: the process ended with {done.returncode}", float(SECONDS)))
    return found


def _try(folder: str, first: int) -> None:
    import resource
    import signal

    whole()  # loads what reads them, before memory is limited
    before = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (before + GROWTH, before + GROWTH))
    for file in sorted(Path(folder).iterdir())[first:]:
        signal.alarm(SECONDS)
        start = time.monotonic()
        how = use(file, file.suffix[1:])
        print(json.dumps([how, time.monotonic() - start]), flush=True)


def wrong(files: list[File], found: list[tuple[str, float]]) -> list[str]:
    """Those that are neither read nor refused in time, and what came of them."""
    return [
        f"{file.name}: {how} after {seconds:.1f} s"
        for file, (how, seconds) in zip(files, found, strict=True)
        if "crash" in how or seconds > 10
    ]


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--try"]:
        return _try(arguments[1], int(arguments[2]))
    count, seed = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    files = [*bombs(), *mutants(seed, count)]
    bad = wrong(files, check(files))
    print("\n".join([*bad, f"{len(files):,} files, {len(bad):,} neither read nor refused in time"]))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
