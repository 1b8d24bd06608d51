"""AWQ's layout: matrices that are packed here number by number are read as they are."""

from __future__ import annotations

from pathlib import Path

import torch
from packed_layouts import D_IN, D_OUT, GROUP, opened, random_codes, words


def test_awq_matrices_are_read_as_packed(tmp_path: Path) -> None:
    codes, zeros = random_codes(1, D_IN, D_OUT), random_codes(2, D_IN // GROUP, D_OUT)
    scales = torch.rand(D_IN // GROUP, D_OUT)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    tensors = {"a.qweight": words(codes, 4, order), "a.qzeros": words(zeros, 4, order), "a.scales": scales}
    weights = opened(tmp_path, tensors, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"})
    wide = [t.repeat_interleave(GROUP, 0) for t in (zeros, scales)]
    torch.testing.assert_close(weights.read("a.weight"), ((codes - wide[0]) * wide[1]).T)
