"""H2O caches: exact while all tokens fit, bounded after, and the tokens that a naive implementation keeps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import qkv
from qkv.nn.cost.kv_cache import cache_parts
from qkv.nn.kv_cache.kinds import FullCache, H2OCache, SnapKVCache, named
from qkv.nn.patterns.basic import causal, documents, window


def model(**changes) -> qkv.TransformerModel:
    spec = qkv.preset("llama", vocab_size=30, d_model=16, n_layers=2, n_heads=4, n_kv_heads=2, max_positions=64)
    spec = spec.replace({f"decoder.blocks.*.attention.{name}": value for name, value in changes.items()})
    built = qkv.build(spec, dtype=torch.float64).eval()
    for block in built.decoder.blocks:  # attention that is far from uniform
        block.attention.q.weight.data *= 50
        block.attention.k.weight.data *= 10
    return built


def ids(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 30, (rows, length), generator=torch.Generator().manual_seed(seed))


def decode(built, tokens: Tensor, how, prompt: int = 5, layout=None) -> tuple[Tensor, qkv.Cache]:
    """The logits of every step after a prompt, and the cache."""
    cache = built.start(len(tokens), cache=how)
    with torch.no_grad():
        logits = [built.step(tokens[:, :prompt], cache, layout)]
        logits += [built.step(tokens[:, t : t + 1], cache) for t in range(prompt, tokens.shape[1])]
    return torch.stack(logits, 1), cache


EVICTING = [H2OCache(heavy=10, recent=20), SnapKVCache(tokens=30, window=4, kernel=3)]


@pytest.mark.parametrize("how", EVICTING, ids=str)
@pytest.mark.parametrize("sink", ["none", "learned"])
def test_a_budget_of_the_whole_length_changes_nothing(how, sink: str) -> None:
    built = model(sink=sink)
    tokens = ids(2, 30)
    torch.testing.assert_close(decode(built, tokens, how)[0], decode(built, tokens, FullCache())[0])


def naive(built, tokens: Tensor, heavy: int, recent: int, prompt: int) -> list[list[list[int]]]:
    """The tokens that each head of the first layer keeps, by H2O's algorithm token by token."""
    block = built.decoder.blocks[0]
    attention, layout = block.attention, qkv.Layout.full(tokens.shape[1])
    from qkv.nn.attention.mixer import Pass

    run = Pass.over(layout, built.decoder.position)
    x = block.norm["attention"](built.decoder.embedding(tokens, None))
    q = run.rotate_queries(attention.q(x).unflatten(-1, (4, 4)))
    k = run.rotate_keys(attention.k(x).unflatten(-1, (2, 4)))
    kept = [list(range(prompt)) for _ in range(2)]
    total = torch.zeros(2, tokens.shape[1], dtype=torch.float64)
    for t in range(tokens.shape[1]):
        if t >= prompt:
            for held in kept:
                held.append(t)
        for head in range(2):
            held = [s for s in kept[head] if s <= t]
            scores = q[0, t, 2 * head : 2 * head + 2] @ k[0, held, head].mT / 2
            total[head, held] += scores.softmax(-1).sum(0)
            if t >= prompt - 1 and len(held) > heavy + recent:
                old = sorted(held[: len(held) - recent], key=lambda s: -total[head, s])[:heavy]
                kept[head] = sorted(old) + held[len(held) - recent :]
    return kept


def test_heads_keep_their_heavy_hitters() -> None:
    built, tokens = model(), ids(1, 20, seed=1)
    _, cache = decode(built, tokens, H2OCache(heavy=3, recent=4), prompt=9)
    _, full = decode(built, tokens, FullCache(), prompt=9)
    ours, all_keys = cache.layers[0].tensors()["k"], full.layers[0].tensors()["k"]
    kept = naive(built, tokens, 3, 4, 9)
    assert kept[0] != kept[1]
    for head in range(2):
        assert torch.equal(ours[0, head], all_keys[0, head, kept[head]])


@pytest.mark.parametrize("how", [H2OCache(heavy=3, recent=4), SnapKVCache(tokens=7, window=2, kernel=3)], ids=str)
def test_rows_are_independent_and_padding_goes_first(how) -> None:
    built, tokens = model(), ids(3, 24, seed=2)
    lengths, prompt = [12, 8, 3], 12
    layout = qkv.Layout.from_lengths(lengths, prompt, "left")
    padded = tokens.clone()
    padded[:, :prompt] = padded[:, :prompt].masked_fill(~layout.valid, 0)
    together, _ = decode(built, padded, how, prompt, layout)
    for row, length in enumerate(lengths):
        alone, _ = decode(built, tokens[row : row + 1, prompt - length :], how, length)
        torch.testing.assert_close(together[row : row + 1], alone)


@pytest.mark.parametrize("how", [H2OCache(heavy=3, recent=4), SnapKVCache(tokens=7, window=2, kernel=3)], ids=str)
def test_memory_is_bounded_and_foretold(how, tmp_path) -> None:
    built = model()
    _, cache = decode(built, ids(2, 16), how, prompt=16)
    foretold = cache_parts(built.spec, 16, how, torch.float64)
    assert cache.parts == {name: 2 * size for name, size in foretold.items()}
    before = cache.nbytes
    with torch.no_grad():
        for t in range(10):
            built.step(ids(2, 1, seed=t), cache)
    assert cache.nbytes == before if isinstance(how, H2OCache) else cache.nbytes == before // 7 * 17
    cache.save(tmp_path / "cache.safetensors")
    again = built.start(2, cache=how)
    again.load(tmp_path / "cache.safetensors")
    cache.reorder(torch.tensor([1, 1, 0])), again.reorder(torch.tensor([1, 1, 0]))
    with torch.no_grad():
        one, two = (built.step(ids(3, 1, seed=9), c) for c in (cache, again))
    assert torch.equal(one, two)
    with pytest.raises(ValueError, match="can't rewind 1 tokens"):
        cache.rewind(1)


def test_beams_decode_with_it() -> None:
    built, tokens = model(), ids(2, 6)
    for how in EVICTING:
        full = built.generate(tokens, num_beams=3, max_new_tokens=12)
        assert torch.equal(built.generate(tokens, num_beams=3, max_new_tokens=12, cache=how), full)
    assert built.generate(tokens, num_beams=3, max_new_tokens=20, cache="h2o").shape == (2, 26)
    small = H2OCache(heavy=2, recent=3)
    assert built.generate(tokens, num_beams=3, max_new_tokens=20, cache=small).shape == (2, 26)
    assert named("snapkv") == SnapKVCache()


def test_layers_with_a_window_keep_a_ring_and_others_are_refused() -> None:
    how, tokens = H2OCache(heavy=10, recent=20), ids(2, 30)
    built = model(pattern=causal() & window(6))
    torch.testing.assert_close(decode(built, tokens, how)[0], decode(built, tokens, FullCache())[0])
    with pytest.raises(ValueError, match="the cache 'h2o' evicts tokens for each head separately"):
        model(pattern=causal() & documents()).start(1, cache=how)
    alibi = qkv.build(qkv.preset("gpt", vocab_size=30, d_model=16, n_layers=1, n_heads=2, position="alibi"))
    with pytest.raises(ValueError, match="position biases need all positions"):
        alibi.start(1, cache="h2o")


@pytest.mark.parametrize("how", EVICTING, ids=str)
def test_position_biases_of_single_blocks_are_refused_too(how) -> None:
    built = qkv.build(model().spec.replace({"decoder.blocks.1.position": qkv.ALiBi()}))
    with pytest.raises(ValueError, match="position biases need all positions"):
        built.start(1, cache=how)


@pytest.mark.parametrize("how", EVICTING, ids=str)
def test_position_biases_that_no_block_uses_are_not_refused(how) -> None:
    spec = model().spec
    blocks = {f"decoder.blocks.{i}.position": qkv.NoPosition() for i in range(spec.decoder.n_layers)}
    qkv.build(spec.replace({"decoder.position": qkv.ALiBi(), **blocks})).start(1, cache=how)
