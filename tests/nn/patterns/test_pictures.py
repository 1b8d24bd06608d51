"""Pictures of masks: characters for a terminal, SVG and PNG."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
import zlib

import torch
from hypothesis import given
from hypothesis import strategies as st
from pattern_rules import (
    patterns,
)
from torch import Tensor

from qkv.core.layout import Layout, Role
from qkv.nn.patterns.basic import (
    Full,
    Pattern,
    causal,
    global_tokens,
    window,
)
from qkv.nn.patterns.pictures import characters, svg


def test_characters_hold_two_rows_a_line() -> None:
    mask = torch.tensor([[True, False, True], [False, True, True], [True, False, False]])
    assert characters(mask).split("\n") == ["▀▄█", "▀  "]


def test_neighboring_keys_are_one_rectangle() -> None:
    mask = torch.tensor([[True, True, False, True], [False, False, False, False]])
    assert svg(mask).count("<rect") == 2


@given(patterns, st.integers(1, 9), st.integers(1, 6))
def test_picture_is_xml_with_a_cell_for_every_pair(pattern: Pattern, n: int, cell: int) -> None:
    picture = pattern.picture(n, cell)
    assert torch.equal(mask_shown(picture, n, cell), pattern.mask(n))
    assert ET.fromstring(picture).attrib["viewBox"] == f"0 0 {n * cell} {n * cell}"


def mask_shown(picture: str, n: int, cell: int) -> Tensor:
    """The mask that a picture shows, no cell of it filled twice."""
    root, mask = ET.fromstring(picture), torch.zeros(n, n, dtype=torch.bool)
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, width, height = (int(rect.attrib[a]) for a in ("x", "y", "width", "height"))
        assert height == cell and x % cell == y % cell == width % cell == 0
        assert not mask[y // cell, x // cell : (x + width) // cell].any()
        mask[y // cell, x // cell : (x + width) // cell] = True
    return mask


def test_picture_of_a_pattern_with_text_in_it_is_valid_xml() -> None:
    class Labelled(Full, kind="labelled"):
        label: str

    title = ET.fromstring(Labelled(label="a < b & c").picture(2)).find("{http://www.w3.org/2000/svg}title")
    assert title is not None and "a < b & c" in (title.text or "")


def test_png_holds_the_mask() -> None:
    pattern, cell = causal() & window(3), 3
    data = pattern.picture(7, cell, format="png")
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    found, at = {}, 8
    while at < len(data):
        (size,), name = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        found[name] = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + found[name])
        at += 12 + size
    assert struct.unpack(">IIBB", found[b"IHDR"][:10]) == (21, 21, 8, 3) and found[b"IEND"] == b""
    lines = torch.tensor(list(zlib.decompress(found[b"IDAT"]))).view(21, 22)
    assert not lines[:, 0].any(), "no scanline is filtered"
    assert torch.equal(lines[::cell, 1::cell].bool(), pattern.mask(7))


def test_a_picture_of_a_layout_has_its_roles_in_it() -> None:
    layout = Layout.full(4).with_roles(torch.tensor([[0, 0, 0, 1]]) * Role.GLOBAL)
    pattern = window(1) | global_tokens()
    assert pattern.mask(layout).int().tolist() == [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]]
    assert torch.equal(mask_shown(pattern.picture(layout), 4, 8), pattern.mask(layout))
    assert pattern.mask(4).int().tolist() == torch.eye(4).int().tolist(), "no role, no global token"
