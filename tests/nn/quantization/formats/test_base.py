"""Formats: codes are the nearest ones, packing loses nothing, and each format's numbers follow its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.quantization.formats import MXFP4, NF4, Format, format_of
from qkv.nn.quantization.methods.rtn import rtn

NAMES = ("int8", "int4", "nf4", "fp8", "mxfp4")


def matrix(seed: int, rows: int = 6, columns: int = 64) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def values(format: Format) -> torch.Tensor:
    """All numbers of a format at the scale 1."""
    if format.name == "fp8":
        numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
        return numbers[numbers.isfinite()]
    if format.name.startswith("int"):
        half = 1 << (format.bits - 1)
        return torch.arange(-half, half).float()
    one = torch.tensor(127, dtype=torch.uint8) if isinstance(format, MXFP4) else torch.tensor(1.0)
    return format.decode(torch.arange(16, dtype=torch.uint8), one, None)


@given(seed=st.integers(0, 10**6), name=st.sampled_from(NAMES), exponent=st.integers(-6, 6))
def test_every_weight_gets_the_nearest_number(seed: int, name: str, exponent: int) -> None:
    format, w = format_of(name), matrix(seed) * 10.0**exponent
    packed = rtn(w, format, 32)
    scales = packed.scales if packed.scales.dtype != torch.uint8 else torch.exp2(packed.scales.float() - 127)
    grid = values(format) * scales[..., None, None]  # (rows, groups, 1, numbers)
    least = (w.unflatten(1, (-1, 32))[..., None] - grid).abs().amin(-1).flatten(1)
    assert torch.allclose((packed.dense() - w).abs(), least, rtol=1e-4, atol=1e-6 * float(w.abs().max()))


def test_numbers_of_mxfp4_and_nf4() -> None:
    """A group's exponent is that of its largest weight, minus 2: 5 lies in [4, 8), so the scale is 4 / 4 = 1."""
    w = torch.zeros(1, 32)
    w[0, :6] = torch.tensor([5.0, -6.9, 0.7, 0.2, 2.4, 7.9])
    packed = rtn(w, format_of("mxfp4"), 32)
    assert packed.scales.tolist() == [[127]]
    assert packed.dense()[0, :6].tolist() == [4.0, -6.0, 0.5, 0.0, 2.0, 6.0]  # 5 and 2.5 lie halfway
    levels = values(NF4())
    assert levels[0] == -1 and levels[7] == 0 and levels[15] == 1 and bool((levels.diff() > 0).all())


@pytest.mark.parametrize("name", NAMES)
def test_zeros_stay_zeros(name: str) -> None:
    packed = rtn(torch.zeros(3, 32), format_of(name), 32)
    assert not packed.dense().any()


@pytest.mark.parametrize(
    ("name", "d_in", "wanted", "group"),
    [
        ("int8", 48, None, 48),
        ("int4", 688, None, 16),
        ("int4", 96, 32, 32),
        ("nf4", 128, None, 64),
        ("mxfp4", 64, None, 32),
    ],
)
def test_sizes_of_groups(name: str, d_in: int, wanted: int | None, group: int) -> None:
    assert format_of(name).group_size(d_in, wanted) == group


@pytest.mark.parametrize(
    ("name", "d_in", "wanted", "message"),
    [
        ("int4", 33, None, "odd number.*int8 can"),
        ("mxfp4", 48, None, "multiples of 32; .*int8.* can"),
        ("mxfp4", 64, 16, "groups of 32"),
        ("int4", 96, 128, "which groups of 128 don't divide; groups of 32 do"),
    ],
)
def test_what_rows_cannot_take(name: str, d_in: int, wanted: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        format_of(name).group_size(d_in, wanted)


def test_an_unknown_format() -> None:
    with pytest.raises(ValueError, match="there is no format of weights 'int3'"):
        format_of("int3")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("symmetric", [True, False])
def test_transposed_weights_give_contiguous_codes(name: str, symmetric: bool) -> None:
    """GPT-2's files hold their matrices transposed, and kernels read codes row by row."""
    if not (symmetric or name.startswith("int")):
        pytest.skip(f"{name} has no zero points")
    w = matrix(3, rows=64, columns=64)
    turned, plain = (rtn(weight, format_of(name), 32, symmetric) for weight in (w.T.contiguous().T, w))
    for part, tensor in turned.tensors().items():
        assert tensor.is_contiguous(), part
        assert torch.equal(tensor.view(torch.uint8), plain.tensors()[part].view(torch.uint8))
