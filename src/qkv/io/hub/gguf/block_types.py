"""The types of numbers in a GGUF file: their ids, and how many bytes a block of them takes.

A quantized type stores a row of a matrix as blocks of 32 or 256 numbers, each block with its own scale. All types of the
format are listed, so every file can be checked and shown; `blocks.py` and `k_quants.py` say which can be computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....core.spec import brief, nearest


@dataclass(frozen=True)
class BlockType:
    """A type of numbers: `width` numbers of a row are stored together in `size` bytes.

    file: the value of `general.file_type` in a file whose matrices are of this type.
    """

    name: str
    id: int
    width: int
    size: int
    file: int | None = None


TYPES: tuple[BlockType, ...] = (
    BlockType("f32", 0, 1, 4, 0),
    BlockType("f16", 1, 1, 2, 1),
    BlockType("q4_0", 2, 32, 18, 2),
    BlockType("q4_1", 3, 32, 20, 3),
    BlockType("q5_0", 6, 32, 22, 8),
    BlockType("q5_1", 7, 32, 24, 9),
    BlockType("q8_0", 8, 32, 34, 7),
    BlockType("q8_1", 9, 32, 40),
    BlockType("q2_k", 10, 256, 84),
    BlockType("q3_k", 11, 256, 110),
    BlockType("q4_k", 12, 256, 144),
    BlockType("q5_k", 13, 256, 176),
    BlockType("q6_k", 14, 256, 210),
    BlockType("q8_k", 15, 256, 292),
    BlockType("iq2_xxs", 16, 256, 66),
    BlockType("iq2_xs", 17, 256, 74),
    BlockType("iq3_xxs", 18, 256, 98),
    BlockType("iq1_s", 19, 256, 50),
    BlockType("iq4_nl", 20, 32, 18),
    BlockType("iq3_s", 21, 256, 110),
    BlockType("iq2_s", 22, 256, 82),
    BlockType("iq4_xs", 23, 256, 136),
    BlockType("i8", 24, 1, 1),
    BlockType("i16", 25, 1, 2),
    BlockType("i32", 26, 1, 4),
    BlockType("i64", 27, 1, 8),
    BlockType("f64", 28, 1, 8),
    BlockType("iq1_m", 29, 256, 56),
    BlockType("bf16", 30, 1, 2, 32),
    BlockType("tq1_0", 34, 256, 54),
    BlockType("tq2_0", 35, 256, 66),
    BlockType("mxfp4", 39, 32, 17),
    BlockType("nvfp4", 40, 64, 36),
    BlockType("q1_0", 41, 128, 18),
)
BY_ID = {kind.id: kind for kind in TYPES}
BY_NAME = {kind.name: kind for kind in TYPES}
WRITTEN = tuple(BY_NAME[name] for name in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"))
"""The types that matrices can be written in."""


def written_type(name: str) -> BlockType:
    """The type of a name, which may be in capitals. Raises ValueError for a type that is not written."""
    kinds = {kind.name: kind for kind in WRITTEN}
    if name.lower() not in kinds:
        only_read = " (it is only read)" if name.lower() in BY_NAME else ""
        raise ValueError(f"GGUF is not written in the type {brief(name)}{only_read}; {nearest(name, kinds)}")
    return kinds[name.lower()]
