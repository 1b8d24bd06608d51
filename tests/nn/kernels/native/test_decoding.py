"""Kernels of decoding take the buffers that they are told of."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.kernels.native import decoding, gelu, ranking, weight_gradients
from qkv.nn.kernels.native.compiler import library

NAMES = ("block_sparse", "decoding", "gelu", "products", "quantized_kv", "transposed", "weight_gradients")


pytestmark = pytest.mark.skipif(
    any(library(name) is None for name in NAMES) or not weight_gradients.ready(),
    reason="needs a C++ compiler or prebuilt kernels, and AVX-512",
)


Q, NONE = torch.randn(1, 2, 2, 16), torch.randn(1, 0, 2, 16)


WIDE = torch.randn(300, 300)


def test_a_mask_is_boolean_and_a_chunk_has_tokens() -> None:
    with pytest.raises(ValueError, match="a mask is boolean"):
        decoding.attend(Q, Q, Q, 1.0, torch.ones(1, 1, 2, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="at least one token, not 0"):
        ranking.rank(WIDE, 0)
    with pytest.raises(ValueError, match="contiguous tensors of one shape"):
        gelu.run(WIDE, WIDE.T, False)
