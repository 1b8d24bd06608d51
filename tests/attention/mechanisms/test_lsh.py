"""LSH attention against its equations: sets of tokens that rounds find, what is never seen, memory, and its error."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from qkv.attention.mechanisms import lsh
from qkv.core.layout import Layout
from qkv.cost.live import Live, without_contents

H, D, E = 3, 4, 5


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotations(rounds: int, buckets: int = 8, seed: int = 9) -> Tensor:
    return drawn(H, D, rounds, buckets // 2, seed=seed)


def exactly(qk: Tensor, v: Tensor, layout: Layout, causal: bool) -> Tensor:
    return lsh.exact(qk, lsh.unit(qk), v, v, layout=layout, kv_layout=layout, causal=causal)


def over(qk: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """The docstring's equation for one row: `seen` (H, T, T) are the sets P_i, without i itself."""
    scores = torch.einsum("thd,shd->hts", qk, qk / qk.norm(dim=-1, keepdim=True))
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    weights = torch.where(seen.any(-1, keepdim=True), weights, torch.eye(len(qk), dtype=qk.dtype))
    return torch.einsum("hts,she->the", weights, v)


@pytest.mark.parametrize("causal", [False, True])
def test_exact_is_shared_qk_attention(causal: bool) -> None:
    qk, v = drawn(1, 7, H, D), drawn(1, 7, H, E, seed=1)
    seen = ~torch.eye(7, dtype=torch.bool)
    seen = (seen.tril() if causal else seen).expand(H, 7, 7)
    torch.testing.assert_close(exactly(qk, v, Layout.full(7), causal)[0], over(qk[0], v[0], seen))
    if causal:
        torch.testing.assert_close(exactly(qk, v, Layout.full(7), causal)[:, 0], v[:, 0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rounds", [1, 3])
def test_in_one_chunk_it_is_exact(rounds: int, causal: bool) -> None:
    qk, v = drawn(2, 20, H, D).requires_grad_(), drawn(2, 20, H, E, seed=1).requires_grad_()
    found = lsh.lsh_attention(qk, v, rotations(rounds), layout=Layout.full(20), chunk=24, causal=causal)
    wanted = exactly(qk, v, Layout.full(20), causal)
    torch.testing.assert_close(found, wanted)
    weight = drawn(*found.shape, seed=2)
    mine, theirs = (torch.autograd.grad((out * weight).sum(), [qk, v]) for out in (found, wanted))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_rounds_unite_the_tokens_that_they_find(rounds: int, causal: bool) -> None:
    """P_i by hand: sorted by bucket, in one's own chunk or the one before; each pair once."""
    length, chunk = 22, 4
    qk, v, turns = drawn(1, length, H, D), drawn(1, length, H, E, seed=1), rotations(rounds, buckets=4)
    buckets = lsh.hashed(qk.transpose(1, 2), turns)[0]
    seen = torch.zeros(H, length, length, dtype=torch.bool)
    for head in range(H):
        for bucket in buckets[head].tolist():
            order = sorted(range(length), key=lambda t: (bucket[t], t))
            place = {token: slot // chunk for slot, token in enumerate(order)}
            for i in range(length):
                for j in range(length):
                    near = place[j] in (place[i], place[i] - 1) and bucket[i] == bucket[j]
                    seen[head, i, j] |= near and i != j and (j < i or not causal)
    found = lsh.lsh_attention(qk, v, turns, layout=Layout.full(length), chunk=chunk, causal=causal)
    torch.testing.assert_close(found[0], over(qk[0], v[0], seen))
    assert length * H < seen.sum() < 0.8 * length * (length - 1) * H / (1 + causal), "neither nothing nor all"


def test_hash_is_the_nearest_of_directions_and_their_opposites() -> None:
    x, turns = drawn(2, H, 30, D), rotations(2)
    directions = torch.cat([turns, -turns], -1)
    nearest = torch.einsum("bhtd,hdrn->bhrtn", x, directions).argmax(-1)
    assert torch.equal(lsh.hashed(x, turns), nearest) and nearest.unique().numel() == 8
    assert torch.equal(lsh.hashed(-x, turns), (nearest + 4) % 8)
    assert torch.equal(lsh.hashed(3 * x, turns), nearest)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_never_seen_and_changes_nothing(side: str, causal: bool) -> None:
    lengths, width = [21, 3, 13], 30
    layout = Layout.from_lengths(lengths, width, side)  # type: ignore[arg-type]
    qk, v = (torch.full((3, width, H, n), float("nan"), dtype=torch.float64) for n in (D, E))
    rows = [(drawn(1, n, H, D, seed=n), drawn(1, n, H, E, seed=n + 1)) for n in lengths]
    for i, (a, b) in enumerate(rows):
        qk[i, layout.valid[i]], v[i, layout.valid[i]] = a[0], b[0]
    found = lsh.lsh_attention(qk, v, rotations(2), layout=layout, chunk=5, causal=causal)
    assert (found[~layout.valid] == 0).all()
    for i, (a, b) in enumerate(rows):
        alone = lsh.lsh_attention(a, b, rotations(2), layout=Layout.full(lengths[i]), chunk=5, causal=causal)
        torch.testing.assert_close(found[i, layout.valid[i]], alone[0])


@pytest.mark.parametrize("causal", [False, True])
def test_documents_never_see_one_another(causal: bool) -> None:
    layout = Layout.packed([[9, 8, 7], [4, 20]])
    qk, v = drawn(2, 24, H, D), drawn(2, 24, H, E, seed=1)

    def out(values: Tensor) -> Tensor:
        return lsh.lsh_attention(qk, values, rotations(2, buckets=4), layout=layout, chunk=5, causal=causal)

    for document in (0, 1):
        other = layout.segments != document  # type: ignore[operator]
        changed = torch.where(other[..., None, None], 7.0, v)
        mine = ~other
        assert torch.equal(out(changed)[mine], out(v)[mine])
    if causal:
        short = replace(layout, one_segment=False)
        fitting = lsh.lsh_attention(qk, v, rotations(2), layout=short, chunk=20, causal=True)
        torch.testing.assert_close(
            fitting, exactly(qk, v, layout, causal=True), msg="documents of one bucket are exact"
        )


def test_tokens_see_nothing_that_comes_after_them() -> None:
    qk, v = drawn(1, 24, H, D), drawn(1, 24, H, E, seed=1)
    changed = v.clone()
    changed[:, 15:] = 3.0
    a, b = (lsh.lsh_attention(qk, x, rotations(2), layout=Layout.full(24), chunk=4) for x in (v, changed))
    assert torch.equal(a[:, :15], b[:, :15]) and not torch.equal(a[:, 15:], b[:, 15:])


def test_memory_grows_as_the_length_and_nothing_is_square() -> None:
    def held(length: int) -> int:
        with without_contents(), Live() as live:
            qk, v = torch.empty(1, length, H, 16).requires_grad_(), torch.empty(1, length, H, 16)
            turns = torch.empty(H, 16, 2, 16)
            out = lsh.lsh_attention(qk, v, turns, layout=Layout.full(length), chunk=32)
            out.sum().backward()
        return live.peak

    short, long = held(4096), held(16384)
    assert long == pytest.approx(4 * short, rel=0.02)
    assert long < H * 16384**2 * 4 / 10


def test_more_rounds_err_less() -> None:
    errors = list(lsh.errors([1, 2, 4, 8], sharpness=10, length=512, buckets=16).values())
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.5 * errors[0]


def test_rotations_follow_from_their_seed_or_the_generator() -> None:
    like = torch.empty(1, dtype=torch.bfloat16)
    fixed = [lsh.fixed_rotations(2, 4, 3, 8, like, seed) for seed in ("0 a", "0 a", "0 b")]
    assert fixed[0].shape == (2, 4, 3, 4) and fixed[0].dtype == torch.float32
    assert torch.equal(fixed[0], fixed[1]) and not torch.equal(fixed[0], fixed[2])
    torch.manual_seed(3)
    first = lsh.draw_rotations(2, 4, 3, 8, like)
    assert not torch.equal(lsh.draw_rotations(2, 4, 3, 8, like), first)
    torch.manual_seed(3)
    assert torch.equal(lsh.draw_rotations(2, 4, 3, 8, like), first)
