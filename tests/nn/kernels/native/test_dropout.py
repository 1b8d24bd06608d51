"""Masks of dropout: the generator's published values, the same in C++ and PyTorch, and independent draws."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.core.ranks import BatchSplit, splitting
from qkv.nn.kernels.native import dropout as native
from qkv.nn.kernels.native.dropout import DropoutMask, WeightPlaces, levels, threefry
from qkv.nn.patterns.documents import TokenPlaces, placed, places_of

MASK = DropoutMask(1_234_567_890_123_456_789, levels(0.1))


@pytest.mark.parametrize(
    ("counter", "key", "expected"),  # of Random123's kat_vectors, threefry2x32 with 20 rounds
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_has_the_published_values(counter: tuple, key: tuple, expected: tuple) -> None:
    assert tuple(map(int, threefry(*map(torch.tensor, (*key, *counter))))) == expected


@pytest.mark.parametrize("shape", [(2, 3, 37, 53), (1, 1, 1, 1), (3, 2, 16, 64)])
def test_cpp_and_pytorch_keep_the_same_weights(shape: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.ready():
        pytest.skip("there is no C++ compiler")
    fast = MASK.weights(shape), MASK.weights(shape, first=(1, 5, 6))
    monkeypatch.setattr(native, "ready", lambda: False)
    assert torch.equal(fast[0], MASK.weights(shape)) and torch.equal(fast[1], MASK.weights(shape, first=(1, 5, 6)))


def test_a_part_of_a_mask_is_the_mask_of_the_part() -> None:
    whole = MASK.weights((3, 2, 40, 60))
    assert torch.equal(MASK.weights((1, 2, 20, 31), first=(2, 7, 11)), whole[2:, :, 7:27, 11:42])
    numbers = MASK.numbers(torch.Size((3, 9, 100)), "cpu")
    assert torch.equal(MASK.numbers(torch.Size((2, 5, 100)), "cpu"), numbers[:2, :5])


def test_a_rank_has_the_masks_of_its_rows() -> None:
    weights, numbers = MASK.weights((3, 2, 9, 9)), MASK.numbers(torch.Size((3, 9, 100)), "cpu")
    with splitting(BatchSplit(first_row=2)):
        own = DropoutMask(MASK.seed, MASK.dropped)
    assert own.row == 2
    assert torch.equal(own.weights((1, 2, 9, 9)), weights[2:])
    assert torch.equal(own.numbers(torch.Size((1, 9, 100)), "cpu"), numbers[2:])
    if native.ready():
        x = torch.randn(1, 9, 100)
        found = native.run(x, None, own, torch.float32)
        torch.testing.assert_close(found, torch.where(numbers[2:], x * MASK.grown, 0.0))


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "float32")])
@pytest.mark.parametrize("shape", [(2, 7, 100), (3, 5, 2, 64), (5, 33), (4, 3, 128), (7,)])
def test_cpp_zeroes_what_the_mask_says(shape: tuple[int, ...], dtypes: tuple[str, str]) -> None:
    if not native.ready():
        pytest.skip("there is no C++ compiler")
    own, dtype = (getattr(torch, name) for name in dtypes)
    x, added = torch.randn(shape).to(own), torch.randn(shape).to(dtype)
    dropped = torch.where(MASK.numbers(x.shape, "cpu"), x.double() * MASK.grown, 0.0)
    tolerance = {"rtol": 1e-2 if dtype == torch.bfloat16 else 1e-6, "atol": 1e-6}
    for more in (None, added):
        out = native.run(x, more, MASK, dtype)
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), dropped if more is None else dropped + more.double(), **tolerance)


PACKED = Layout.packed([[70, 130], [9, 150]], 210)


def test_cpp_and_pytorch_keep_the_same_weights_of_packed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.ready():
        pytest.skip("there is no C++ compiler")
    places = places_of(PACKED)
    assert places is not None
    of = WeightPlaces.of(replace(places, head=2), places.token, 2, 210)
    fast = MASK.weights((2, 3, 210, 210), of=of)
    tile = MASK.weights((2, 3, 30, 45), of=of.of_tile(slice(60, 90), slice(50, 95)))
    assert torch.equal(tile, fast[:, :, 60:90, 50:95])
    assert torch.equal(fast, MASK.weights((2, 3, 210, 210), of=WeightPlaces.parted(of.joined(210, 210, 2), 210, 2)))
    monkeypatch.setattr(native, "ready", lambda: False)
    assert torch.equal(fast, MASK.weights((2, 3, 210, 210), of=of))
    alone = MASK.weights((3, 5, 150, 150))  # documents 0, 1 and 2 as rows
    assert torch.equal(fast[0, :, 70:200, 70:200], alone[1, 2:, :130, :130])
    assert torch.equal(fast[1, :, :9, :9], alone[2, 2:, :9, :9])


@pytest.mark.parametrize("channel", [0, 64, 40])
def test_channels_and_tokens_of_a_part_have_the_mask_of_the_whole(channel: int) -> None:
    whole = MASK.numbers(torch.Size((4, 150, 300)), "cpu")
    places = places_of(PACKED)
    assert places is not None
    with placed(replace(places, channel=channel)):
        own = DropoutMask(MASK.seed, MASK.dropped)
    found = own.numbers(torch.Size((2, 210, 100)), "cpu")
    channels = slice(channel, channel + 100)
    assert torch.equal(found[0, :70], whole[0, :70, channels]) and torch.equal(
        found[0, 70:200], whole[1, :130, channels]
    )
    assert torch.equal(found[1, 9:159], whole[3, :150, channels])
    if native.ready() and own.whole_chunks:
        x = torch.randn(2, 210, 100)
        torch.testing.assert_close(native.run(x, None, own, torch.float32), torch.where(found, x * own.grown, 0.0))


def test_tokens_in_another_order_are_dropped_otherwise_on_each_part() -> None:
    shape, numbered = torch.Size((50, 64)), torch.arange(7)[None]
    parts = [TokenPlaces(token=numbered, part=part) for part in (0, 1)]
    masks = [DropoutMask(MASK.seed, levels(0.5), places=places).numbers(shape, "cpu") for places in parts]
    assert 0.4 < (masks[0] == masks[1]).float().mean() < 0.6


def test_nan_and_infinity_stay_in_bf16() -> None:
    if not native.ready():
        pytest.skip("there is no C++ compiler")
    x = torch.tensor([[float("nan"), float("inf"), -float("inf"), 1.0]] * 4).to(torch.bfloat16)
    out = native.run(x, None, DropoutMask(1, 0), torch.bfloat16)
    assert torch.equal(out.isnan(), x.isnan()) and torch.equal(out[:, 1:], x[:, 1:])


def correlated(a: Tensor, b: Tensor, p: float) -> float:
    """The correlation of two masks, in standard deviations of that of independent ones."""
    a, b = (x.flatten().double() - (1 - p) for x in (a, b))
    return float((a * b).mean() / (p * (1 - p)) * len(a) ** 0.5)


@pytest.mark.parametrize(
    ("p", "side"), [(0.1, 250), *(pytest.param(p, 800, marks=pytest.mark.slow) for p in (0.1, 0.5))]
)
def test_a_million_and_ten_million_draws_are_independent(p: float, side: int) -> None:
    kept = DropoutMask(7, levels(p)).weights((4, 4, side, side))
    other = DropoutMask(8, levels(p)).weights((4, 4, side, side))  # of the next step, or of another layer
    share = 1 - levels(p) / 65536
    assert abs(float(kept.double().mean()) - share) < 4 * (p * (1 - p) / kept.numel()) ** 0.5
    pairs = [
        *((kept[..., :-n], kept[..., n:]) for n in (1, 2, 3, 4, 8)),  # keys
        *((kept[..., :-n, :], kept[..., n:, :]) for n in (1, 2, 16)),  # queries
        (kept[..., :-1, :-1], kept[..., 1:, 1:]),
        (kept[:, :-1], kept[:, 1:]),  # heads
        (kept[:-1], kept[1:]),  # rows
        (kept, other),
    ]
    assert max(abs(correlated(a, b, 1 - share)) for a, b in pairs) < 4.5
