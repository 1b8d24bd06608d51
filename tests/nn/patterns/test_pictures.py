"""Masks as characters for a terminal; SVG and PNG are tested through `Pattern.picture` in test_basic.py."""

from __future__ import annotations

import torch

from qkv.nn.patterns.pictures import characters, svg


def test_characters_hold_two_rows_a_line() -> None:
    mask = torch.tensor([[True, False, True], [False, True, True], [True, False, False]])
    assert characters(mask).split("\n") == ["▀▄█", "▀  "]


def test_neighboring_keys_are_one_rectangle() -> None:
    mask = torch.tensor([[True, True, False, True], [False, False, False, False]])
    assert svg(mask).count("<rect") == 2
