"""The numbered bugs of contracts.md, which other libraries shipped: a test for each that would have caught it.

Here those of masks, positions and caches, 1 to 8; the others in `test_shipped_bugs_in_use.py`. Those that need parts which
are not built yet are in `summary.NOT_YET`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from axes import PARTIAL, positions
from every import call, every_backend, every_decoder, every_family, leaves
from small import (
    LONGEST,
    alone,
    ids,
    model,
    packed,
    padded,
    randn,
    same,
    spread,
)
from summary import NOT_YET
from torch.nn import functional as F

from qkv.attention.attend import attend
from qkv.attention.ring import ring
from qkv.core.layout import Layout
from qkv.kernels.backends import BACKENDS
from qkv.patterns.basic import causal, full, window
from qkv.positions.schemes import Learned, Position, Rotary, Sinusoidal, Widths

# -- 1 … 4: masks ------------------------------------------------------------------------------------------------------


@every_backend
@pytest.mark.parametrize("how", ["pattern", "padding", "segments", "bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bug_01_fully_masked_rows_give_zero(backend: str, how: str, dtype: torch.dtype) -> None:
    """A row that may see nothing gives 0 and no gradient: never NaN, never the mean of V."""
    q, k, v = leaves(dtype=dtype)
    options: dict[str, Any] = {"layout": alone(5), "kv_layout": alone(5)}
    if how == "pattern":  # the first tokens see nothing
        options["pattern"] = causal() & ~window(2)
    elif how == "padding":  # a whole source of padding
        options["kv_layout"] = Layout.from_lengths([0, 3], 5)
    elif how == "segments":
        segments = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 2, 2, 2]])
        options["kv_layout"] = Layout(alone(5).positions.expand(2, -1, -1), segments, one_segment=False)
    else:
        options["bias"] = torch.zeros(5, 5, dtype=dtype).index_fill(0, torch.tensor([0, 3]), float("-inf"))
    hidden = {"pattern": (..., slice(0, 2)), "padding": (0,), "segments": (1,), "bias": (slice(None), [0, 3])}[how]
    hidden = (slice(None), slice(0, 2)) if how == "pattern" else hidden
    out = attend(q, k, v, backend=backend, **options)
    out.float().square().sum().backward()
    assert bool((out[hidden] == 0).all())
    assert float(out.detach().abs().sum()) > 0
    for leaf in (q, k, v):
        assert leaf.grad is not None
        assert bool(leaf.grad.isfinite().all())
    assert q.grad is not None
    assert bool((q.grad[hidden] == 0).all())


@every_backend
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("side", ["left", "right", "holes"])
def test_bug_02_nan_in_padding_does_not_leak(backend: str, poison: float, side: str) -> None:
    """NaN or Inf in a padded key or value changes neither the output nor any gradient of what is real."""
    layout = padded([3, 5], side, 6)
    found = []
    for fill in (0.0, poison):
        q, k, v = leaves(t=6, s=6)
        k, v = (x.detach().masked_fill(~layout.valid[..., None, None], fill).requires_grad_() for x in (k, v))
        out = attend(q, k, v, pattern=causal(), layout=layout, backend=backend)
        out.square().sum().backward()
        found.append([out, q.grad, k.grad, v.grad])
    for clean, poisoned in zip(*found, strict=True):
        assert torch.equal(clean, poisoned)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name not in ("sdpa", *PARTIAL)])
@pytest.mark.parametrize("how", ["pattern", "segments", "bias"])
def test_bug_02_nan_in_masked_tokens_does_not_leak(backend: str, how: str) -> None:
    """A real token that holds NaN reaches those who see it and nobody else, whatever hides it from the others."""
    q, k, v = leaves(1, 6, 6)
    k, v = (x.detach().index_fill(1, torch.tensor([4]), float("nan")).requires_grad_() for x in (k, v))
    options: dict[str, Any] = {"pattern": causal()} if how == "pattern" else {}
    if how == "segments":
        options["layout"] = packed([[4, 2]])
    if how == "bias":
        options["bias"] = (
            torch.zeros(6, 6, dtype=torch.float64).triu(1).masked_fill(torch.ones(6, 6).triu(1) > 0, float("-inf"))
        )
    out = attend(q, k, v, backend=backend, **options)
    assert bool(out[:, :4].isfinite().all())
    assert bool(out[:, 4:].isnan().all())
    out[:, :4].sum().backward()
    assert q.grad is not None
    assert bool(q.grad[:, :4].isfinite().all())


@every_backend
def test_bug_03_causal_alignment_of_unequal_lengths(backend: str) -> None:
    """Three queries and seven keys are not aligned by guessing: it is an error, and layouts say where queries stand."""
    q, k, v = leaves(1, 3, 7)
    with pytest.raises(ValueError, match="layout"):
        attend(q, k, v, pattern=causal(), backend=backend)
    k2, v2 = (x.transpose(1, 2).repeat_interleave(2, 1) for x in (k, v))
    for start in (0, 2, 4):
        out = attend(q, k, v, pattern=causal(), layout=Layout.full(3, start), kv_layout=Layout.full(7), backend=backend)
        seen = torch.arange(7) <= torch.arange(start, start + 3)[:, None]
        same(out, F.scaled_dot_product_attention(q.transpose(1, 2), k2, v2, attn_mask=seen).transpose(1, 2))


@every_backend
def test_bug_04_a_window_holds_as_many_tokens_as_it_says(backend: str) -> None:
    """`causal() & window(3)` is three tokens, itself included; value j is what a query that sees only j would give."""
    q = torch.zeros(1, 8, 1, 8, dtype=torch.float64)
    v = torch.eye(8, dtype=torch.float64)[None, :, None]
    seen = attend(q, q, v, pattern=causal() & window(3), backend=backend)[0, :, 0] > 0
    assert seen.sum(1).tolist() == [1, 2, 3, 3, 3, 3, 3, 3]
    assert seen[5].nonzero().flatten().tolist() == [3, 4, 5]
    both = attend(q, q, v, pattern=window(2), backend=backend)[0, :, 0] > 0
    assert both[4].nonzero().flatten().tolist() == [3, 4, 5]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bug_04_a_window_cache_stays_causal(size: int) -> None:
    """What a ring has overwritten is not seen, what comes later is not either, wherever chunks cut it."""
    built = model("decoder", causal() & window(size), layers=1)
    tokens = ids(1, 14, seed=3)
    for chunk in (1, 2, 3, 4):
        cache, found = built.start(1), []
        for at in range(0, 14, chunk):
            with torch.no_grad():
                found.append(built.step(tokens[:, at : at + chunk], cache, all_positions=True))
        same(torch.cat(found, 1), built(tokens), what=f"window {size} in chunks of {chunk}")
        assert cache.nbytes <= 14 * 2 * 4 * 4 * 8


# -- 5 … 8: positions and caches ---------------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("position", [e.value for e in positions()], ids=[e.label for e in positions()])
def test_bug_05_left_padding_does_not_shift_positions(family: str, position: Position) -> None:
    """However much padding stands on the left, the first real token is at position 0."""
    built, tokens = model(family, position=position), ids(1, 5, seed=1)
    wanted = call(built, tokens)
    for width in (6, 11):
        layout = Layout.from_lengths([5], width, "left")
        assert int(layout.positions[0, width - 5]) == 0
        same(call(built, spread([tokens[0]], layout), layout)[:, -5:], wanted)


@every_decoder
def test_bug_06_a_cache_grows_past_its_capacity(family: str) -> None:
    """More tokens than there was room for change nothing; past the model's context there is an error and no wrap."""
    built = model(family, position=Learned())
    tokens = ids(2, LONGEST, seed=1)
    source = {"source": ids(1, 4, seed=9).expand(2, -1)} if family == "encoder-decoder" else {"batch_size": 2}
    cache = built.start(**source, capacity=5)
    with torch.no_grad():
        found = [built.step(tokens[:, :3], cache, all_positions=True)]
        found += [built.step(tokens[:, t : t + 1], cache, all_positions=True) for t in range(3, LONGEST)]
    same(torch.cat(found, 1), call(built, tokens))
    with pytest.raises(ValueError, match="context"):
        built.step(tokens[:, :1], cache)


def test_bug_06_a_ragged_batch_does_not_overflow_the_context() -> None:
    """The longest of left-padded rows comes to the end of the context: a clear error, as with rows of equal length."""
    built = model("decoder", position=Learned())
    cache = built.start(2)
    with torch.no_grad():
        built.step(ids(2, LONGEST - 1), cache, Layout.from_lengths([5, LONGEST - 1], side="left"))
        built.step(ids(2, 1), cache)
        with pytest.raises(ValueError, match="context"):
            built.step(ids(2, 1), cache)


def test_bug_06_decoding_goes_on_where_the_prompt_ends() -> None:
    """A prompt that begins at a later position is continued at the position after its last."""
    built, tokens = model("decoder", position=Sinusoidal()), ids(1, 5)
    cache = built.start(1)
    with torch.no_grad():
        built.step(tokens[:, :3], cache, Layout.full(3, start=7))
        found = torch.stack([built.step(tokens[:, t : t + 1], cache) for t in (3, 4)], 1)
    same(found, built(tokens, layout=Layout.full(5, start=7))[:, 3:])


def test_bug_06_rewinding_a_ragged_batch_into_its_padding() -> None:
    """Rows that have no token left begin again at position 0."""
    built, tokens, new = model("decoder", position=Sinusoidal()), ids(2, 6), ids(2, 1, seed=5)
    cache = built.start(2)
    with torch.no_grad():
        built.step(tokens, cache, Layout.from_lengths([3, 6], side="left"))
        cache.rewind(4)
        found = built.step(new, cache)
    same(found[0], built(new[:1])[0, -1])
    same(found[1], built(torch.cat([tokens[1:, :2], new[1:]], 1))[0, -1])


@pytest.mark.parametrize("pattern", [causal(), causal() & window(3)], ids=["full", "ring"])
def test_bug_07_every_cache_is_reordered(pattern: Any) -> None:
    """Self-attention's full and ring caches and the cross caches all follow the beams, and so do rows' positions."""
    built = model("encoder-decoder", pattern, Sinusoidal())
    lengths, order = [3, 6, 4], torch.tensor([2, 2, 0, 1])
    source, tokens, layout = ids(3, 6, seed=1), ids(3, 6, seed=2), Layout.from_lengths(lengths, side="left")
    cache = built.start(source=source, source_layout=padded(lengths, "right", 6))
    with torch.no_grad():
        built.step(tokens, cache, layout)
    cache.reorder(order)
    more = ids(4, 5, seed=3)
    with torch.no_grad():
        found = torch.stack([built.step(more[:, t : t + 1], cache) for t in range(5)], 1)
    for beam, row in enumerate(order.tolist()):
        whole = torch.cat([tokens[row, layout.valid[row]], more[beam]])[None]
        wanted = built(source[row : row + 1, : lengths[row]], whole)
        same(found[beam], wanted[0, lengths[row] :], what=f"beam {beam}")
    assert cache.batch_size == 4


def test_bug_07_beams_may_leave_the_encoders_keys_where_they_are() -> None:
    """Beams of one sentence that change places need no new cross caches: the logits are those of reordering them too."""
    built, tokens, new = model("encoder-decoder", position=Rotary()), ids(4, 5), ids(4, 1, seed=1)
    source, order = ids(2, 4, seed=2).repeat_interleave(2, 0), torch.tensor([1, 0, 3, 3])
    found = []
    for cross in (True, False):
        cache = built.start(source=source)
        with torch.no_grad():
            built.step(tokens, cache)
            cache.reorder(order, cross=cross)
            found.append(built.step(new, cache))
    assert torch.equal(*found)
    same(found[0], built(source, torch.cat([tokens[order], new], 1))[:, -1])


@pytest.mark.parametrize(
    "kind", [Rotary(), Rotary(pairs="interleaved"), Sinusoidal()], ids=["half", "interleaved", "sines"]
)
def test_bug_08_positions_are_computed_in_single_precision(kind: Position) -> None:
    """bf16 can't tell position 4096 from 4097: angles have to be fp32 whatever the model's dtype, autocast or not."""
    module = kind.module(Widths(16, 4, 8, None)).to(torch.bfloat16)
    layout = Layout.full(2, start=4096)
    with torch.autocast("cpu", torch.bfloat16):
        made = module.embed(layout), module.tables(layout)
    values = torch.cat([t.flatten(2) for t in (made[1] or (made[0],))], -1)  # type: ignore[union-attr]
    assert values.dtype == torch.float32
    width = 16 if made[1] is None else 8
    rate = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.tensor([4096.0, 4097.0], dtype=torch.float64)[:, None] * rate
    wanted = (
        torch.cat([angle.cos(), angle.sin()], -1) if made[1] else torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    )
    assert float((values[0] - wanted).abs().max()) < 2e-3
    assert not torch.equal(values[:, 0], values[:, 1])


def test_bug_08_rotary_layouts_are_not_mixed_up() -> None:
    """Pairs i, i + R/2 and pairs 2i, 2i + 1 are one rotation under a permutation of coordinates, and not the same."""
    x, layout, width = randn(1, 6, 2, 8), Layout.full(6, start=3), Widths(16, 2, 8, None)
    half, between = (Rotary(pairs=pairs).module(width) for pairs in ("half", "interleaved"))
    shuffle = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])  # half → interleaved
    turned = half.rotate(x, half.tables(layout))
    same(between.rotate(x[..., shuffle], between.tables(layout)), turned[..., shuffle], 1e-7)
    assert float((between.rotate(x, between.tables(layout)) - turned).abs().max()) > 0.1
    first = torch.polar(
        torch.ones(6, dtype=torch.float64), torch.arange(3, 9, dtype=torch.float64)
    )  # pair 0 turns by p
    same(turned[0, :, 0, [0, 4]], torch.view_as_real(torch.complex(x[0, :, 0, 0], x[0, :, 0, 4]) * first), 1e-6)


@pytest.mark.parametrize("pattern", [full(), causal(), causal() & window(5), ~causal()])
@pytest.mark.parametrize("shards, order", [(2, "contiguous"), (3, "zigzag")])
def test_bug_18_a_rings_backward_pass_meets_the_keys_of_its_step(pattern: Any, shards: int, order: Any) -> None:
    """Whatever the mask: shares are balanced for a causal one, and right for all."""
    given, grad = leaves(2, 13, 13), randn(2, 13, 4, 8, seed=9)
    found = [
        (out, *torch.autograd.grad(out, given, grad))
        for out in (ring(*given, shards=shards, order=order, pattern=pattern), attend(*given, pattern=pattern))
    ]
    for ours, wanted in zip(*found, strict=True):
        same(ours, wanted)


def test_every_bug_has_a_test_or_a_reason() -> None:
    """All 26 numbers are tested, here or in `test_shipped_bugs_in_use.py`, or listed with what they wait for."""
    sources = (path.read_text() for path in Path(__file__).parent.glob("test_shipped_bugs*.py"))
    tested = {
        int(number) for source in sources for number in re.findall(r"^def test_bug_(\d\d)_", source, re.MULTILINE)
    }
    assert tested | NOT_YET.keys() == set(range(1, 27))
    assert not tested & NOT_YET.keys()
