"""Two codes of 4 bits share a byte."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.quantization.formats import nibbles


@given(st.lists(st.integers(0, 15), min_size=2, max_size=40).filter(lambda codes: len(codes) % 2 == 0))
def test_two_codes_share_a_byte(codes: list[int]) -> None:
    given_codes = torch.tensor([codes], dtype=torch.uint8)
    assert torch.equal(nibbles.unpack(nibbles.pack(given_codes)), given_codes)
