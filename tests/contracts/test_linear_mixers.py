"""The contracts for mixers with their own state, sums over keys or last inputs: cached = uncached, padded = alone,
packed = separate, accumulated = whole, compiled = eager, with every feature map, in every shape of model."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from axes import BLOCKS, HEADS, Example, named, words
from selection import Combination, Contract
from small import alone, distance, gradients, ids, model, packed, padded, same, same_gradients, spread, stirred
from torch import Tensor

import qkv
from qkv.core.batch import IGNORE
from qkv.nn.attention.convolution import ByteNetConvolution, Convolution
from qkv.nn.attention.feature_maps import Favor, FeatureMap, Relu
from qkv.nn.attention.linear import LinearAttention
from qkv.nn.attention.multi_head import Attention
from qkv.nn.attention.performer import Performer
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.patterns.basic import causal, documents, full
from qkv.nn.positions.absolute import Learned, NoPosition
from qkv.nn.positions.rotary import Rotary

MIXERS = [
    Example("elu1", LinearAttention(n_heads=4)),
    Example("relu", LinearAttention(n_heads=4, features=Relu())),
    Example("favor", LinearAttention(n_heads=4, features=Favor(n_features=7, orthogonal=False))),
    Example("performer", Performer(n_heads=4, features=Favor(n_features=11))),
    Example("convolution", Convolution(kernel=3, dilation=2, gated=True)),
    Example("bytenet", ByteNetConvolution(kernel=3, d_inner=6)),
]
SUMS = [example for example in MIXERS if isinstance(example.value, LinearAttention)]
POSITIONS = [Example("none", NoPosition()), Example("learned", Learned()), Example("rotary", Rotary())]
AXES = {
    "mixer": MIXERS,
    "position": POSITIONS,
    "family": words("encoder", "decoder", "encoder-decoder"),
    "heads": named(HEADS),
    "block": named(BLOCKS),
}


def test_every_feature_map_is_here() -> None:
    maps = {example.value.features.kind for example in SUMS}
    assert maps == {kind for kind, cls in FeatureMap.kinds.items() if cls.__module__.startswith("qkv.")}


def without_heads(case: Combination) -> str | None:
    if isinstance(case.mixer, Convolution) and (case.heads or isinstance(case.position, Rotary)):
        return "a convolution has no heads to rotate or to share"
    return None


def made(case: Combination, layers: int = 2) -> TransformerModel:
    """A tiny model whose last stack has the mixer in place of attention."""
    block = getattr(case, "block", None)
    built = model(case.family, None, case.position, block=block, heads=case.heads, layers=layers)
    stack = "encoder" if case.family == "encoder" else "decoder"
    pattern = full() if case.family == "encoder" else causal() & documents()
    mixer = case.mixer.replace({"pattern": pattern, **case.heads})
    spec = built.spec.replace({f"{stack}.blocks.*.attention": mixer})
    return stirred(qkv.build(spec, dtype=torch.float64)).eval()


def inputs_of(case: Combination, tokens: Tensor, layout: Any, source: Tensor, source_layout: Any) -> dict[str, Any]:
    if case.family != "encoder-decoder":
        return {"ids": tokens, "layout": layout}
    return {"ids": source, "layout": source_layout, "target": tokens, "target_layout": layout}


@pytest.mark.contract(Contract({**AXES, "side": words("left", "right", "holes")}, without_heads, fast=1, whole=2))
def test_padded_is_alone(case: Combination) -> None:
    built, lengths, sources = made(case), [6, 1, 9], [2, 8, 5]
    rows, others = ([ids(n, seed=n + i) for n in counts] for i, counts in enumerate((lengths, sources)))
    layout, source_layout = padded(lengths, case.side), padded(sources, case.side, 11)
    found = built(**inputs_of(case, spread(rows, layout), layout, spread(others, source_layout), source_layout))
    (found * layout.valid[..., None]).square().sum().backward()
    together = gradients(built)
    for i, n in enumerate(lengths):
        single = built(**inputs_of(case, rows[i][None], alone(n), others[i][None], alone(sources[i])))
        same(found[i, layout.valid[i]], single[0], what=f"row {i}'s logits")
        single.square().sum().backward(inputs=[p for p in built.parameters() if p.requires_grad])
    same_gradients(together, gradients(built))


@pytest.mark.contract(Contract(AXES, without_heads, fast=1, whole=2))
def test_packed_is_separate(case: Combination) -> None:
    built, rows, sources = made(case), [[4, 1, 5], [7, 2]], [[3, 2, 1], [1, 6]]
    layout, source_layout = packed(rows, 11), packed(sources)
    tokens, source = ids(*layout.shape, seed=1), ids(*source_layout.shape, seed=2)
    labels = ids(*layout.shape, seed=3).masked_fill(~layout.valid, IGNORE)
    whole = inputs_of(case, tokens, layout, source, source_layout)
    logits, loss = built(**whole), built(**whole, labels=labels).loss
    loss.backward()
    together, one_by_one = gradients(built), 0.0
    for row, counts in enumerate(rows):
        for number, n in enumerate(counts):
            at, begin = sum(counts[:number]), sum(sources[row][:number])
            end, mine = begin + sources[row][number], slice(at, at + n)
            parts = (tokens[row : row + 1, mine], alone(n), source[row : row + 1, begin:end], alone(end - begin))
            single = inputs_of(case, *parts)
            same(logits[row, mine], built(**single)[0], what=f"document {number} of row {row}")
            part = built(**single, labels=labels[row : row + 1, mine]).loss
            part.backward()
            one_by_one += float(part.detach())
    assert float(loss.detach()) == pytest.approx(one_by_one, rel=1e-10)
    same_gradients(together, gradients(built))


WAYS = {"steps": range(4, 14), "chunks": [4, 6, 9, 10, 13], "end": [12, 13]}


def decoders(case: Combination) -> str | None:
    return "an encoder does not decode" if case.family == "encoder" else without_heads(case)


@pytest.mark.contract(Contract({**AXES, "way": named(WAYS)}, decoders, fast=1, whole=2))
def test_cached_is_uncached(case: Combination) -> None:
    """Prompts of unequal length, padded on the left, in pieces; then rows change places, as beams do."""
    built, lengths, sources = made(case), [13, 9, 11], [5, 2, 7]
    layout, source_layout = padded(lengths, "left", 13), padded(sources, "right")
    tokens, source = ids(3, 13, seed=1), ids(*source_layout.shape, seed=2)
    crossing = case.family == "encoder-decoder"
    cache = built.start(source=source, source_layout=source_layout) if crossing else built.start(3)
    with torch.no_grad():
        found = [
            built.step(tokens[:, a:b], cache, layout.slice(a, b), all_positions=True)
            for a, b in pairwise([0, *case.way])
        ]
        real = layout.valid
        same(torch.cat(found, 1)[real], built(**inputs_of(case, tokens, layout, source, source_layout))[real])
        rows = torch.tensor([2, 0, 0, 1])
        cache.reorder(rows)
        more = ids(4, 3, seed=5)
        steps = torch.cat([built.step(more[:, t : t + 1], cache, all_positions=True) for t in range(3)], 1)
        for i, row in enumerate(rows.tolist()):
            whole = torch.cat([tokens[row, real[row]], more[i]])[None]
            lone = inputs_of(
                case, whole, alone(whole.shape[1]), source[row : row + 1], source_layout.select(rows[i : i + 1])
            )
            same(steps[i], built(**lone)[0, -3:], what=f"beam {i} of row {row}")


@pytest.mark.parametrize("mixer", [example.value for example in SUMS], ids=lambda m: m.kind)
def test_a_state_does_not_grow(mixer: LinearAttention) -> None:
    spec = qkv.preset("gpt2", n_layers=1, d_model=16, n_heads=4, vocab_size=17, max_positions=99)
    mixer = mixer.replace(pattern=causal(), n_kv_heads=2, d_value=6)
    built = qkv.build(spec.replace({"decoder.blocks.*.attention": mixer}))
    cache = built.start(3)
    held = []
    for _ in range(3):
        built.step(ids(3, 20), cache)
        held.append(cache.nbytes)
    features = mixer.features.width(4)
    tops = 2 * 4 if isinstance(mixer.features, Favor) else 0
    assert held == [3 * mixer.state_parts(16, 20, 4)["sums over tokens"]] * 3 == [3 * (4 * 2 * features * 7 + tops)] * 3
    with pytest.raises(ValueError, match="can't rewind 1"):
        cache.rewind(1)
    assert cache.length == 60  # nothing was taken back anywhere


@pytest.mark.contract(Contract(AXES, without_heads, fast=1, whole=1))
def test_accumulated_is_whole(case: Combination) -> None:
    """Micro-batches of unequal numbers of tokens, against all rows at once: the gradients of sums."""
    built, lengths = made(case), [6, 1, 9, 4]
    layout = padded(lengths, "right")
    tokens, labels = ids(*layout.shape, seed=1), ids(*layout.shape, seed=2).masked_fill(~layout.valid, IGNORE)
    source, source_layout = ids(4, 5, seed=3), alone(5)
    built(**inputs_of(case, tokens, layout, source, source_layout), labels=labels).loss.backward()
    whole = gradients(built)
    for a, b in ((0, 1), (1, 4)):
        rows = torch.arange(a, b)
        parts = inputs_of(case, tokens[rows], layout.select(rows), source[rows], source_layout)
        built(**parts, labels=labels[rows]).loss.backward()
    same_gradients(gradients(built), whole)


TRACED = {**{axis: AXES[axis] for axis in AXES if axis != "block"}, "rows": words("plain", "left", "packed")}


@pytest.mark.contract(Contract(TRACED, without_heads, fast=0, whole=2))
def test_compiled_is_eager(case: Combination) -> None:
    torch.compiler.reset()
    built = made(case, layers=1)
    layout = {"plain": alone(7), "left": padded([5, 2], "left", 7), "packed": packed([[3, 4], [2, 5]], 7)}[case.rows]
    source = packed([[2, 1], [1, 3]], 4) if case.rows == "packed" else padded([4, 3], "right", 4)
    inputs = inputs_of(case, ids(2, 7, seed=1), layout, ids(2, 4, seed=2), source)
    results = []
    for run in (torch.compile(built, backend="aot_eager", fullgraph=True), built):
        loss = run(**inputs, labels=ids(2, 7, seed=3)).loss
        loss.backward()
        results.append((loss, gradients(built)))
    same(results[0][0], results[1][0])
    same_gradients(results[0][1], results[1][1])
    torch.compiler.reset()


def test_performer_with_enough_features_is_attention() -> None:
    """The whole model, positions and all: with m features the logits differ by O(m^−½)."""
    built = qkv.build(model("decoder", position=Rotary()).spec, dtype=torch.float64)
    tokens, apart = ids(2, 9), []
    wanted = built(tokens).detach()
    for m in (16, 256, 16384):
        mixer = Performer(n_heads=4, pattern=causal(), features=Favor(n_features=m))
        other = qkv.replace(built, {"decoder.blocks.*.attention": mixer}).model
        apart.append(distance(other(tokens), wanted))
    assert apart[2] < 0.05 and apart[0] > apart[1] > 3 * apart[2]
    assert isinstance(built.spec.decoder.blocks[0].attention, Attention)
