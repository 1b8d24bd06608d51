"""LSH attention against its equations: rounds, what is never seen, memory; the layer's draws, decoding, cost, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.core.layout import Layout
from qkv.generation import generate
from qkv.nn.attention import lsh
from qkv.nn.attention.lsh import LSHAttention, MultiHeadLSHAttention
from qkv.nn.attention.mixer import Pass
from qkv.nn.cost.memory_tracking import Live, without_contents
from qkv.nn.patterns.basic import causal, full, window
from qkv.nn.positions.base import PositionModule, Widths
from qkv.nn.positions.bias import ALiBi
from qkv.nn.positions.rotary import Rotary

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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize(("lengths", "chunk"), [((9, 8, 7), 10), ((4, 4, 4, 4, 4), 5), ((3, 20, 5, 4), 6)])
def test_short_documents_are_exact_across_the_border_of_a_chunk(
    lengths: tuple[int, ...], chunk: int, rounds: int, causal: bool
) -> None:
    layout, total = Layout.packed([lengths]), sum(lengths)
    qk, v = drawn(1, total, H, D), drawn(1, total, H, E, seed=1)
    found = lsh.lsh_attention(qk, v, rotations(rounds), layout=layout, chunk=chunk, causal=causal)
    start = 0
    for length in lengths:
        own = slice(start, start + length)
        start += length
        seen = ~torch.eye(length, dtype=torch.bool)
        seen = (seen.tril() if causal else seen).expand(H, length, length)
        if length <= chunk:
            torch.testing.assert_close(found[0, own], over(qk[0, own], v[0, own], seen))


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


# -- the layer ---------------------------------------------------------------------------------------------------------


M, VOCAB = 12, 23


def made(name: str = "", **options: Any) -> MultiHeadLSHAttention:
    spec = LSHAttention.from_dict({"n_heads": 3, "buckets": 4, "chunk": 4, **options})
    module = spec.module(M, name=name).double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    assert isinstance(module, MultiHeadLSHAttention)
    assert spec.cost(M).parameters == sum(p.numel() for p in module.parameters())
    return module


def run_over(length: int) -> Pass:
    return Pass.over(Layout.full(length), PositionModule())


def gpt(position: str = "rotary", **options: Any) -> qkv.Transformer:
    spec = qkv.preset("gpt2", n_layers=2, d_model=32, n_heads=4, vocab_size=VOCAB, max_positions=64, dropout=0.0)
    layer = LSHAttention(n_heads=4, pattern=causal(), **{"buckets": 4, "chunk": 8, "rounds": 2, **options})
    return spec.replace({"decoder.blocks.*.attention": layer, "decoder.position": position})


@pytest.mark.parametrize("options", [{}, {"bias": True, "d_head": 6, "d_value": 5}, {"pattern": "causal"}], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_outputs_match_the_equation(options: dict[str, Any], turned: bool) -> None:
    x, d = torch.randn(2, 11, M, dtype=torch.float64), options.get("d_head", 4)
    position = Rotary().module(Widths(M, 3, d, None)) if turned else PositionModule()
    run = Pass.over(Layout.full(11), position)
    rest: dict[str, Any] = {"layout": run.layout, "causal": "pattern" in options}
    for chunk in (None, 4):
        module = made(chunk=chunk, **options)
        qk, v = (layer(x).unflatten(-1, (3, -1)) for layer in (module.qk, module.v))
        qk = position.rotate(qk, run.tables) if run.tables is not None else qk
        if chunk is None:
            expected = lsh.exact(qk, lsh.unit(qk), v, v, kv_layout=run.layout, **rest)
        else:
            turns = lsh.fixed_rotations(3, d, 4, 4, qk, "0 ")
            expected = lsh.lsh_attention(qk, v, turns, chunk=4, **rest)
        torch.testing.assert_close(module(x, run), module.out(expected.flatten(-2)))


def test_rotations_are_drawn_in_training_and_fixed_in_evaluation() -> None:
    module, other = made("a"), made("b")
    other.load_state_dict(module.state_dict())
    x = torch.randn(1, 40, M, dtype=torch.float64)
    assert torch.equal(module(x, run_over(40)), module(x, run_over(40)))
    assert not torch.equal(module(x, run_over(40)), other(x, run_over(40))), "each layer has its own"
    module.train()
    torch.manual_seed(0)
    first, second = module(x, run_over(40)), module(x, run_over(40))
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(module(x, run_over(40)), first)


def test_rows_up_to_a_chunk_are_exact() -> None:
    module, whole = made(chunk=16), made(chunk=None)
    whole.load_state_dict(module.state_dict())
    x = torch.randn(2, 16, M, dtype=torch.float64)
    torch.testing.assert_close(module(x, run_over(16)), whole(x, run_over(16)), rtol=0, atol=0)


@pytest.mark.parametrize("options", [{"chunk": 32}, {"chunk": None}], ids=str)
@torch.no_grad()
def test_decoding_is_evaluation_where_that_is_exact(options: dict[str, Any]) -> None:
    """In steps, from prompts padded on the left, after reorder and rewind."""
    model = qkv.build(gpt(**options), dtype=torch.float64).eval()
    lengths, ids = [5, 9, 3], torch.randint(VOCAB, (3, 9))
    layout, more = Layout.from_lengths(lengths, side="left"), torch.randint(VOCAB, (3, 6))
    cache = model.start(3)
    model.step(torch.randint(VOCAB, (3, 9)).where(~layout.valid, ids), cache, layout)
    model.step(more[:, :2], cache)
    cache.rewind(2)
    rows = torch.tensor([2, 0, 0, 1])
    cache.reorder(rows)
    steps = torch.cat([model.step(more[rows, t : t + 1], cache, all_positions=True) for t in range(6)], 1)
    for i, row in enumerate(rows.tolist()):
        whole = model(torch.cat([ids[row, 9 - lengths[row] :], more[row]])[None])[0]
        torch.testing.assert_close(steps[i], whole[lengths[row] :])


def test_it_learns_and_generates() -> None:
    model, ids = qkv.build(gpt()).train(), torch.randint(VOCAB, (4, 40))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = model(ids, labels=ids.roll(-1, 1)).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
    model.eval()
    for beams in (1, 3):
        prompts = [[3, 4, 5], [6], [7, 8]]
        together = generate(model, prompts, max_new_tokens=5, num_beams=beams).best
        assert together == [generate(model, [p], max_new_tokens=5, num_beams=beams).best[0] for p in prompts]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.slow
def test_it_compiles(training: bool) -> None:
    """Training as one graph; in evaluation the seeded rotations break it."""
    torch.compiler.reset()
    model, ids = qkv.build(gpt()).train(training), torch.randint(VOCAB, (1, 20))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=training)
    outs = []
    for f in (compiled, model):
        torch.manual_seed(2)
        outs.append(f(ids, labels=ids).loss)
    torch.testing.assert_close(*outs)
    torch.compiler.reset()


def test_cost_grows_as_the_length() -> None:
    spec = LSHAttention(n_heads=3, buckets=4, chunk=4, rounds=2, d_value=5, pattern=causal())
    projections = M * 3 * (4 + 5) + 3 * 5 * M
    hashing, pairs = 10 * 3 * 4 * 2 * 4, 2 * 12 * 8
    assert spec.cost(M, tokens=10, pairs=55).flops == 2 * projections * 10 + 2 * pairs * 3 * (4 + 5) + hashing
    assert spec.cost(M, tokens=4, pairs=10).flops == 2 * projections * 4 + 2 * 10 * 3 * (4 + 5)
    for tokens in (512, 2048):  # of the rest, nothing grows faster than the length
        assert spec.cost(M, 2 * tokens).flops == 2 * spec.cost(M, tokens).flops


@pytest.mark.parametrize(
    "given, said",
    [
        ({"buckets": 5}, "buckets: buckets must be even, not 5, because a direction and its opposite are two"),
        ({"pattern": causal() & window(3)}, r"pattern: the pattern of lsh-attention is full\(\) or causal\(\), not"),
        ({"chunk": 0}, "chunk: input should be greater than 0, not 0"),
        ({"rounds": 0}, "rounds: input should be greater than 0"),
        ({"n_heads": 5}, "n_heads=5 does not divide d_model=12"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made(**given)


def test_crossing_and_biases_are_refused() -> None:
    with pytest.raises(ValueError, match="for cross-attention take attention"):
        LSHAttention(n_heads=3).module(M, cross=True)
    biased = Pass.over(Layout.full(5), ALiBi().module(Widths(M, 3, 4, None)))
    with pytest.raises(ValueError, match="lsh-attention has no scores of token pairs"):
        made()(torch.randn(1, 5, M, dtype=torch.float64), biased)


def test_autocast_and_padding_that_is_not_a_number() -> None:
    module = made(pattern=full()).float()
    layout = Layout.from_lengths([9, 6])
    x: Tensor = torch.randn(2, 9, M).masked_fill(~layout.valid[..., None], float("nan"))
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x, Pass.over(layout, PositionModule()))
    assert out.dtype == torch.bfloat16 and out[layout.valid].isfinite().all()
