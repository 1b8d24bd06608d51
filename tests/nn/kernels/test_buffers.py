"""Native entry points refuse empty memory, memory of other types, and results that share memory with what is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from qkv.nn.kernels import buffers
from qkv.nn.kernels.native import (
    block_sparse,
    decoding,
    decoding_step,
    gelu,
    products,
    quantized_kv,
    ranking,
    transposed,
    weight_gradients,
)
from qkv.nn.kernels.native.compiler import library
from qkv.nn.kernels.native.structures import LayerStruct, NormStruct
from qkv.nn.kv_cache.quantization import SCALE_DTYPE, QuantizedTensor

NAMES = ("block_sparse", "decoding", "gelu", "products", "quantized_kv", "transposed", "weight_gradients")
pytestmark = pytest.mark.skipif(
    any(library(name) is None for name in NAMES) or not weight_gradients.ready(),
    reason="needs a C++ compiler or prebuilt kernels, and AVX-512",
)

Q, NONE = torch.randn(1, 2, 2, 16), torch.randn(1, 0, 2, 16)
WIDE = torch.randn(300, 300)
_SCALES = torch.ones(1, 1, 2, 1, 16, dtype=SCALE_DTYPE)
CODES = QuantizedTensor(8, torch.zeros(1, 1, 2, 8, 16, dtype=torch.int8), _SCALES, _SCALES)


def step(rows: int, count: int) -> None:
    decoding_step.run(torch.zeros(rows, 8), (LayerStruct * 1)(), count, 8, NormStruct())


EMPTY: dict[str, Callable[[], object]] = {
    "attention without queries": lambda: decoding.attend(NONE, Q, Q, 1.0),
    "attention without keys": lambda: decoding.attend(Q, NONE, NONE, 1.0),
    "attention without values": lambda: decoding.attend(Q, Q, Q[..., :0], 1.0),
    "blocks without queries": lambda: block_sparse._call("qkv_forward", [NONE, Q, Q], [], None, 1.0, None, False),  # type: ignore[arg-type]
    "products without rows": lambda: products.products(WIDE[:0], [products.Matrix(WIDE)]),
    "products without a matrix": lambda: products.products(WIDE, [products.Matrix(WIDE[:0])]),
    "ranking without logits": lambda: ranking.rank(WIDE[:0], 4),
    "GELU of nothing": lambda: gelu.run(WIDE[:0], None, False),
    "a copy of nothing": lambda: transposed.copy(WIDE[:0], WIDE[:0]),
    "gradients of nothing": lambda: weight_gradients.put(WIDE[:0], WIDE[:, :0], WIDE),
    "codes without rows": lambda: quantized_kv.scores(Q[:, :, :0], CODES, torch.empty(1, 1, 0, 16)),
}


@pytest.mark.parametrize("case", EMPTY)
def test_empty_tensors_are_refused(case: str) -> None:
    with pytest.raises(ValueError, match="takes tensors with at least one number; got the shapes"):
        EMPTY[case]()


SHARED: dict[str, Callable[[], object]] = {
    "a copy into itself": lambda: transposed.copy(WIDE, WIDE.T),
    "a copy into one row": lambda: transposed.copy(torch.zeros(1, 300).expand(300, -1), torch.randn(300, 300).T),
    "gradients into an input": lambda: weight_gradients.put(WIDE, torch.randn(5, 300), WIDE[:5]),
    "sums into an input": lambda: weight_gradients.put(
        torch.empty(300, 300), WIDE[:5], torch.randn(5, 300), False, WIDE[2]
    ),
    "scores into queries": lambda: quantized_kv.scores(Q.view(1, 1, 4, 16), CODES, Q.view(1, 1, 4, 16)),
}


@pytest.mark.parametrize("case", SHARED)
def test_results_that_share_memory_are_refused(case: str) -> None:
    with pytest.raises(ValueError, match="shares no memory with its inputs"):
        SHARED[case]()


def test_what_shares_no_memory_is_not() -> None:
    buffers.check_apart("copy", WIDE[:150], WIDE[150:], None)


@pytest.mark.parametrize("arguments", [(0, 1), (1, 2), (1, -1)])
def test_steps_of_no_rows_or_of_layers_that_are_not_there_are_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="of some rows and up to 1 layers"):
        step(*arguments)
