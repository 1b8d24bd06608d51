"""GPTQ's layout: matrices that are packed here number by number are read as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from packed_layouts import D_IN, D_OUT, GROUP, opened, random_codes, words


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_gptq_matrices_are_read_as_packed(tmp_path: Path, bits: int, version: str, shuffled: bool) -> None:
    codes, zeros = random_codes(1, D_OUT, D_IN, bits=bits), random_codes(2, D_OUT, D_IN // GROUP, bits=bits) // 2 + 1
    scales = torch.rand(D_OUT, D_IN // GROUP) + 0.1
    group_of = torch.arange(D_IN) // GROUP
    if shuffled:
        group_of = group_of[torch.randperm(D_IN, generator=torch.Generator().manual_seed(3))]
    stored = zeros - int(version == "gptq")
    tensors = {
        "a.qweight": words(codes, bits).T.contiguous(),
        "a.qzeros": words(stored.T.contiguous(), bits),
        "a.scales": scales.T.contiguous(),
        "a.g_idx": group_of.int(),
        "a.bias": torch.ones(D_OUT),
    }
    config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "checkpoint_format": version}
    weights = opened(tmp_path, tensors, config)
    assert dict(weights.shapes) == {"a.weight": (D_OUT, D_IN), "a.bias": (D_OUT,), "norm.weight": (3,)}
    expected = (codes - zeros[:, group_of]) * scales[:, group_of]
    torch.testing.assert_close(weights.read("a.weight"), expected)
    assert (weights.matrix("a.weight").order is not None) == shuffled
