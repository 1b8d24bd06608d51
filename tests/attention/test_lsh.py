"""The layer of LSH attention: its equation, its draws, decoding where it is exact, cost and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.attention.lsh import LSHAttention, MultiHeadLSHAttention
from qkv.attention.mechanisms import lsh
from qkv.attention.multi_head import Pass
from qkv.core.layout import Layout
from qkv.generation import generate
from qkv.patterns.basic import causal, full, window
from qkv.positions.base import PositionModule, Widths
from qkv.positions.bias import ALiBi
from qkv.positions.rotary import Rotary

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
def test_the_equation(options: dict[str, Any], turned: bool) -> None:
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


def test_cost() -> None:
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
        ({"buckets": 5}, "buckets: a direction and its opposite are two buckets, so their number is even, not 5"),
        ({"pattern": causal() & window(3)}, r"pattern: it is full\(\) or causal\(\), as buckets say the rest, not"),
        ({"chunk": 0}, "chunk: input should be greater than 0, not 0"),
        ({"rounds": 0}, "rounds: input should be greater than 0"),
        ({"n_heads": 5}, "n_heads=5 does not divide d_model=12"),
    ],
)
def test_wrong_values(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made(**given)


def test_what_it_has_no_place_for() -> None:
    with pytest.raises(ValueError, match="to cross, take attention"):
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
