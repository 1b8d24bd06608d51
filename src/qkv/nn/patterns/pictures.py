"""Draw boolean masks as SVG, PNG, or characters for a terminal: a row for each query, a column for each key."""

from __future__ import annotations

import html
import struct
import zlib

from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F

INK, PAPER = "4269d0", "ffffff"


def svg(mask: Bool[Tensor, "T S"], title: str = "", cell: int = 8) -> str:
    """A rectangle for each run of allowed keys, and a faint grid."""
    rows, columns = mask.shape
    runs = [
        f'<rect x="{start * cell}" y="{i * cell}" width="{(stop - start) * cell}" height="{cell}"/>'
        for i, row in enumerate(mask.tolist())
        for start, stop in _runs(row)
    ]
    width, height = columns * cell, rows * cell
    grid = "".join(f"M{i * cell} 0V{height}" for i in range(columns + 1))
    grid += "".join(f"M0 {i * cell}H{width}" for i in range(rows + 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<title>{html.escape(title)}</title><g fill="#{INK}">{"".join(runs)}</g>'
        f'<path d="{grid}" stroke="#8884" stroke-width="0.5"/></svg>'
    )


def png(mask: Bool[Tensor, "T S"], cell: int = 8) -> bytes:
    """Eight bits a pixel, each an index into two colors (PNG specification, third edition, §11)."""
    pixels = mask.cpu().byte().repeat_interleave(cell, 0).repeat_interleave(cell, 1)
    height, width = pixels.shape
    scanlines = F.pad(pixels, (1, 0)).numpy().tobytes()  # each row begins with its filter, 0 for none
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(name, data)
        for name, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", bytes.fromhex(PAPER + INK)),
            (b"IDAT", zlib.compress(scanlines, 9)),
            (b"IEND", b""),
        )
    )


def characters(mask: Bool[Tensor, "T S"]) -> str:
    """Two rows in a line: `▀` is the upper, `▄` the lower, `█` both."""
    even = F.pad(mask, (0, 0, 0, mask.shape[0] % 2))
    lines = zip(even[::2].tolist(), even[1::2].tolist(), strict=True)
    return "\n".join("".join(" ▀▄█"[a + 2 * b] for a, b in zip(*pair, strict=True)) for pair in lines)


def _runs(row: list[bool]) -> list[tuple[int, int]]:
    edges = [i for i in range(len(row) + 1) if (i < len(row) and row[i]) != (i > 0 and row[i - 1])]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
