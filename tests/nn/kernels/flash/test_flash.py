"""Our Triton kernels against the reference in float64, forward and backward, as Triton's interpreter computes them.

Triton decides when it is imported whether it interprets; so all of it runs in one process beside the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from fast_subset import fast

from qkv.nn.attention.attend import attend
from qkv.nn.kernels import flash
from qkv.nn.kernels.flash import support

sys.path.insert(0, str(Path(__file__).parent))
import flash_compile
import flash_worker

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no wheels for this platform")
LIMITS = {torch.float32: 1e-5, torch.float16: 2e-3}
Remote = Callable[..., Any]


SHARED = {80: 163 << 10, 90: 227 << 10}  # bytes of shared memory that a program may have, by compute capability


@pytest.fixture(scope="module")
def there() -> Iterator[Remote]:
    """Runs a function of `flash_worker` where Triton interprets."""
    with (
        pytest.MonkeyPatch.context() as patch,
        ProcessPoolExecutor(1, get_context("spawn"), flash_worker.start) as pool,
    ):
        patch.setenv("TRITON_INTERPRET", "1")
        pool.submit(abs, 0).result()  # starts the process, with this environment
        patch.undo()
        yield lambda work, *args: pool.submit(work, *args).result()


# One of most cases, dtypes and shapes (key-value heads, width of keys, of values) in turn.
SHAPES = ((4, 16, 16), (2, 24, 16), (1, 32, 40), (2, 64, 64))
DTYPES = (torch.float32, torch.float16)
LATER = {
    "causal",
    "t5",
    "plain",
    "left",
    "capped",
    "hidden",
    "outside",
    "prefix",
    "prefix roles",
    "right",
    "late",
    "strided",
    "image",
    "alibi left",
    "alibi bf16",
    "dense rows",
    "dilated",
    "holes",
    "dense whole",
    "dense columns",
    "dense numbers",
}
CHOSEN = [
    (case, DTYPES[i % 2], *SHAPES[(i // 2 + i) % 4]) for i, case in enumerate(flash_worker.CASES) if case not in LATER
]
PRODUCT = [(case, dtype, *shape) for case in flash_worker.CASES for dtype in DTYPES for shape in SHAPES]


@needs_triton
@pytest.mark.parametrize("case, dtype, n_kv_heads, d, e", CHOSEN)
def test_equals_the_reference_with_its_gradients(
    there: Remote, case: str, dtype: torch.dtype, n_kv_heads: int, d: int, e: int
) -> None:
    errors = there(flash_worker.agreement, case, dtype, n_kv_heads, d, e)
    assert max(errors) < LIMITS[dtype], f"out, lse, gradients of q, k, v, (bias): {errors}"


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("case, dtype, n_kv_heads, d, e", sorted(set(PRODUCT) - set(CHOSEN), key=str))
def test_equals_the_reference_in_every_combination(
    there: Remote, case: str, dtype: torch.dtype, n_kv_heads: int, d: int, e: int
) -> None:
    errors = there(flash_worker.agreement, case, dtype, n_kv_heads, d, e)
    assert max(errors) < LIMITS[dtype], f"out, lse, gradients of q, k, v, (bias): {errors}"


@needs_triton
@pytest.mark.parametrize("width", [*(pytest.param(n, marks=pytest.mark.slow) for n in (80, 96, 128, 200)), 256])
def test_widths_of_heads(there: Remote, width: int) -> None:
    errors = there(flash_worker.agreement, "causal", torch.float32, 2, width, width)
    assert max(errors) < LIMITS[torch.float32], f"{errors}"


@needs_triton
def test_dropout_drops_the_same_weights_backward(there: Remote) -> None:
    *errors, kept = there(flash_worker.dropout_agreement, 0.3)
    assert max(errors) < LIMITS[torch.float32], f"{errors}"
    assert kept == pytest.approx(0.7, abs=0.02)


@needs_triton
def test_dropout_follows_the_seed_and_differs_everywhere_else(there: Remote) -> None:
    same, *others = there(flash_worker.dropout_masks)
    assert same == 1.0
    assert others == pytest.approx([0.5] * 3, abs=0.04)


@needs_triton
def test_nan_reaches_those_who_see_it_and_no_others(there: Remote) -> None:
    found = there(flash_worker.poisoned)
    assert all(found.values()), found


@pytest.mark.slow
@needs_triton
def test_results_are_the_same_bits_every_time(there: Remote) -> None:
    assert there(flash_worker.repeats)


@needs_triton
@pytest.mark.parametrize("kind", fast(["slices", "transposed", "gaps"], "gaps"))
def test_inputs_may_lie_in_memory_as_they_like(there: Remote, kind: str) -> None:
    errors = there(flash_worker.strided_inputs, kind)
    assert max(errors) < LIMITS[torch.float32], f"{errors}"


@needs_triton
@pytest.mark.parametrize("case", ["packed", pytest.param("alibi", marks=pytest.mark.slow)])
def test_a_compiled_graph_holds_the_operator_as_one_node(there: Remote, case: str) -> None:
    assert max(there(flash_worker.compiled, case)) == 0.0


@needs_triton
def test_nothing_to_do(there: Remote) -> None:
    found = there(flash_worker.nothing)
    assert all(found.values()), found


@needs_triton
@pytest.mark.parametrize(
    "tokens, splits, dtype, options",
    [
        (1, 1, torch.float32, {}),
        (1, 3, torch.float16, {}),
        (5, 2, torch.float32, {"softcap": 2.0}),
        (3, 2, torch.float32, {"window": 7}),
    ],
)
def test_decoding_from_pages(there: Remote, tokens: int, splits: int, dtype: torch.dtype, options: Any) -> None:
    errors = there(flash_worker.paged, tokens, splits, dtype, options)
    assert max(errors) < LIMITS[dtype], f"out, lse: {errors}"


@needs_triton
@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"dtype": torch.float64}, "in fp32, fp16 and bf16, not in torch.float64"),
        ({"dtype": torch.bfloat16}, "interpreter does not multiply bf16 correctly"),
        ({"d": 264}, "up to 256 wide, not 264"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(there: Remote, changes: Any, reason: str) -> None:
    assert reason in there(flash_worker.refusal, changes)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    "case, dtype, width, dropout",
    [
        ("causal", torch.bfloat16, 64, 0.0),
        ("causal", torch.float16, 128, 0.1),
        ("packed", torch.bfloat16, 256, 0.0),
        ("sinks", torch.float32, 96, 0.0),
        ("capped", torch.float32, 256, 0.0),
        ("heads", torch.bfloat16, 128, 0.0),
        ("t5 causal", torch.bfloat16, 64, 0.1),
        ("alibi", torch.float16, 80, 0.0),
        ("dense columns", torch.bfloat16, 128, 0.0),
        ("dense rows", torch.float32, 64, 0.0),
        ("paged", torch.bfloat16, 128, 0.0),
    ],
)
@pytest.mark.parametrize("capability", SHARED)
def test_every_kernel_compiles_for_a_gpu_and_fits(
    capability: int, case: str, dtype: torch.dtype, width: int, dropout: float
) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        used = pool.submit(flash_compile.shared_memory, capability, case, dtype, width, dropout).result()
    assert len(used) == (1 if case == "paged" else 4 if case.startswith("dense") else 3)
    assert all(min(settings) <= SHARED[capability] for settings in used.values()), used


def test_without_an_interpreter_a_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    x = torch.randn(1, 4, 2, 16)
    with pytest.raises(ValueError, match=r"needs (a CUDA device|Triton)"):
        attend(x, x, x, backend="flash")
    with pytest.raises(ValueError, match="paged attention can't be computed here: it needs"):
        flash.paged(x, x, x, torch.zeros(1, 1, dtype=torch.int32), torch.tensor([4]))


def test_without_triton_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    support._missing_on.cache_clear()
    try:
        x = torch.randn(1, 4, 2, 16)
        with pytest.raises(ValueError, match="it needs Triton, which is not installed"):
            attend(x, x, x, backend="flash")
    finally:
        support._missing_on.cache_clear()


@pytest.mark.parametrize(
    "shapes, message",
    [
        (((4, 2, 16), (3, 8, 2, 16), (3, 8, 2, 16), (1, 3), (1,)), r"q is \(batch, tokens, heads, width\)"),
        (((1, 1, 4, 16), (3, 8, 3, 16), (3, 8, 3, 16), (1, 3), (1,)), "don't fit together"),
        (((2, 1, 4, 16), (3, 8, 2, 16), (3, 8, 2, 16), (1, 3), (2,)), "a table is"),
    ],
)
def test_pages_that_do_not_fit(shapes: Any, message: str) -> None:
    tensors = [torch.zeros(shape, dtype=torch.int32 if len(shape) < 3 else None) for shape in shapes]
    with pytest.raises(ValueError, match=message):
        flash.paged(*tensors)
