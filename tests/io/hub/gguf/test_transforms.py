"""How llama.cpp's tensors differ: order of rotated rows, shifted norms, scaled outputs."""

from __future__ import annotations

import torch

from qkv.io.hub.gguf.transforms import RotatedNeighbors, Shifted, Times


def test_rotated_pairs_stand_beside_each_other_head_by_head() -> None:
    """Three heads of width 4, rotated pairs (0, 2) and (1, 3) of each."""
    ours = torch.arange(12)[:, None] * torch.ones(1, 3)
    (theirs,) = RotatedNeighbors(3).to_theirs([ours])
    assert theirs[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11]
    (back,) = RotatedNeighbors(3).to_ours([theirs], [])
    assert torch.equal(back, ours) and RotatedNeighbors(3).keeps_rows


def test_norms_are_shifted_and_outputs_scaled_in_fp32() -> None:
    half = torch.tensor([0.5, -1.0], dtype=torch.bfloat16)
    assert Shifted(1.0).to_theirs([half])[0].tolist() == [1.5, 0.0]
    assert Shifted(1.0).to_ours([half], [])[0].tolist() == [-0.5, -2.0]
    assert Times(4.0).to_theirs([half])[0].tolist() == [2.0, -4.0]
    assert Times(4.0).to_ours([half], [])[0].tolist() == [0.125, -0.25]
    assert Times(4.0).to_ours([half], [])[0].dtype == torch.float32 == Shifted(1.0).to_theirs([half])[0].dtype
