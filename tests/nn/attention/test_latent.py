"""Latent attention: its equations, its two forms, what it remembers, and DeepSeek's layer in another library."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.core.layout import Layout
from qkv.generation import generate
from qkv.nn.attention.latent import LatentAttention, MultiHeadLatentAttention
from qkv.nn.attention.mixer import Pass
from qkv.nn.layers.lora import LoRA, layers
from qkv.nn.patterns.basic import causal, window
from qkv.nn.positions.base import Position, Widths
from qkv.nn.positions.bias import ALiBi
from qkv.nn.positions.rotary import Rotary

M, VOCAB = 12, 23
SIZES: dict[str, Any] = {"n_heads": 3, "d_head": 5, "d_rotary": 4, "d_latent": 7}


def made(**options: Any) -> tuple[MultiHeadLatentAttention, LatentAttention]:
    spec = LatentAttention.from_dict({**SIZES, **options})
    module = spec.module(M).double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    assert isinstance(module, MultiHeadLatentAttention)
    return module, spec


def run_over(length: int, position: Position | None = None) -> Pass:
    return Pass.over(Layout.full(length), (position or Rotary()).module(Widths(M, 3, 4, None)))


def gpt(position: Any = "rotary", n_layers: int = 2, **options: Any) -> qkv.Transformer:
    spec = qkv.preset("gpt2", n_layers=n_layers, d_model=32, n_heads=4, vocab_size=VOCAB, max_positions=64, dropout=0.0)
    layer = LatentAttention(**{**SIZES, "n_heads": 4, **options})
    return spec.replace({"decoder.blocks.*.attention": layer, "decoder.position": position})


@pytest.mark.parametrize("options", [{}, {"d_query": 6}, {"d_value": 2, "norm": "layernorm", "scale": 0.7}], ids=str)
def test_outputs_match_the_equations(options: dict[str, Any]) -> None:
    """The docstring's, head by head."""
    module, spec = made(**options)
    x, run = torch.randn(2, 6, M, dtype=torch.float64), run_over(6)
    assert run.tables is not None

    def turn(t: Tensor) -> Tensor:
        return run.position.rotate(t[:, :, None], run.tables)[:, :, 0]  # type: ignore[arg-type]

    def rows(layer: Any, i: int) -> Tensor:
        return layer.weight.unflatten(0, (3, -1))[i].mT

    c, k_rotary = module.kv_norm(module.kv_down(x)), turn(module.k_rotary(x))
    y, w_q = (module.q_norm(module.q_down(x)), module.q_up) if spec.d_query else (x, module.q)
    heads = []
    for i in range(3):
        plain, turned = (y @ rows(w_q, i)).split([5, 4], -1)
        q, k = torch.cat([plain, turn(turned)], -1), torch.cat([c @ rows(module.k_up, i), k_rotary], -1)
        scores = q @ k.mT * (spec.scale or 9**-0.5)
        hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
        heads.append(scores.masked_fill(hidden, float("-inf")).softmax(-1) @ (c @ rows(module.v_up, i)))
    torch.testing.assert_close(module(x, run), module.out(torch.cat(heads, -1)))
    assert spec.cost(M).parameters == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("position", [Rotary(), Rotary(fraction=0.5), ALiBi()], ids=lambda p: p.kind)
def test_both_forms_are_one(position: Position) -> None:
    module, _ = made(pattern=causal() & window(4))
    x = torch.randn(2, 6, M, dtype=torch.float64, requires_grad=True)
    run = run_over(6, position)
    q, latent = module._queries(x, run), module._latent(x, run)
    outs = [form(q, latent, run, run.layout) for form in (module.expanded, module.absorbed)]
    torch.testing.assert_close(*outs)
    leaves = [x, *(p for name, p in module.named_parameters() if "out" not in name)]
    torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), leaves, retain_graph=True) for out in outs))


def test_the_cheaper_form_decodes() -> None:
    module, _ = made(d_latent=512)
    module.d_head = module.d_value = 128
    assert module.absorbs(1, 1000) and module.absorbs(4, 1000) and not module.absorbs(1000, 1000)


@pytest.mark.parametrize("options", [{}, {"d_query": 6, "d_rotary": 0}, {"d_latent": 40}], ids=str)
@torch.no_grad()
def test_decoding(options: dict[str, Any]) -> None:
    """In steps, from prompts padded on the left, after reorder and rewind."""
    position = "rotary" if options.get("d_rotary", 4) else "learned"
    model = qkv.build(gpt(position, **options), dtype=torch.float64).eval()
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


@torch.no_grad()
def test_a_window_keeps_a_ring() -> None:
    model = qkv.build(gpt(pattern=causal() & window(5)), dtype=torch.float64).eval()
    ids, cache = torch.randint(VOCAB, (2, 14)), model.start(2)
    found = [model.step(ids[:, :7], cache, all_positions=True)]
    found += [model.step(ids[:, t : t + 1], cache, all_positions=True) for t in range(7, 14)]
    torch.testing.assert_close(torch.cat(found, 1), model(ids))
    assert cache.nbytes == 2 * 2 * 5 * (7 + 4) * 8


@torch.no_grad()
def test_it_remembers_the_latent_and_one_turned_key() -> None:
    spec = gpt(n_layers=3)
    model, cache = qkv.build(spec).eval(), None
    cache = model.start(2)
    model.step(torch.randint(VOCAB, (2, 10)), cache)
    layer = spec.decoder.blocks[0].attention  # type: ignore[union-attr]
    assert isinstance(layer, LatentAttention) and layer.numbers_per_token == 7 + 4
    assert cache.nbytes == 3 * 2 * 10 * layer.numbers_per_token * 4


@torch.no_grad()
def test_adapters_count_in_both_forms() -> None:
    model = qkv.adapt(qkv.build(gpt(), dtype=torch.float64).eval(), LoRA(layers=("*_up",), rank=2))
    for layer in layers(model).values():
        layer.lora_b.normal_()
    ids, cache = torch.randint(VOCAB, (2, 8)), model.start(2)
    found = torch.cat([model.step(ids[:, t : t + 1], cache, all_positions=True) for t in range(8)], 1)
    torch.testing.assert_close(found, model(ids))


def test_it_learns_and_generates() -> None:
    model, ids = qkv.build(gpt()).train(), torch.randint(VOCAB, (4, 20))
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


def test_it_compiles_as_one_graph() -> None:
    torch.compiler.reset()
    model, ids = qkv.build(gpt(d_query=6)).train(), torch.randint(VOCAB, (2, 9))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(ids, labels=ids).loss, model(ids, labels=ids).loss)
    torch.compiler.reset()


def test_cost_is_projections_pairs_and_norms() -> None:
    spec = LatentAttention(**SIZES, d_query=6, d_value=2)
    matrices = M * 6 + 6 * 3 * 9 + M * 11 + 7 * 3 * (5 + 2) + 3 * 2 * M
    norms = 4 * (6 + 7)
    assert spec.cost(M, tokens=10, pairs=55).flops == 2 * matrices * 10 + 2 * 55 * 3 * (9 + 2) + 10 * norms


def test_refusals_name_the_reason() -> None:
    with pytest.raises(ValueError, match="for cross-attention take attention"):
        LatentAttention(**SIZES).module(M, cross=True)
    with pytest.raises(ValueError, match=r"rotary positions rotate pairs: .* of d_head 0 is 0 coordinates"):
        qkv.build(gpt(d_rotary=0))


@pytest.mark.parametrize("low_rank", [None, 6])
def test_it_is_deepseeks_layer(low_rank: int | None) -> None:
    transformers = pytest.importorskip("transformers", reason="outputs are compared with Hugging Face's transformers")
    theirs = pytest.importorskip("transformers.models.deepseek_v2.modeling_deepseek_v2")
    config = transformers.DeepseekV2Config(
        hidden_size=M,
        num_attention_heads=3,
        num_key_value_heads=3,
        q_lora_rank=low_rank,
        kv_lora_rank=8,
        qk_nope_head_dim=6,
        qk_rope_head_dim=4,
        v_head_dim=2,
        head_dim=4,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    peer = theirs.DeepseekV2Attention(config, 0).eval()
    sizes: dict[str, Any] = {"n_heads": 3, "d_head": 6, "d_rotary": 4, "d_latent": 8, "d_value": 2}
    module = LatentAttention(**sizes, d_query=low_rank).module(M).eval()
    for parameter in peer.parameters():
        nn.init.normal_(parameter, std=0.5)
    given = {name: p.detach() for name, p in peer.named_parameters()}
    latent, rotary = given["kv_a_proj_with_mqa.weight"].split([8, 4])
    k_up, v_up = given["kv_b_proj.weight"].unflatten(0, (3, 8)).split([6, 2], 1)
    state = {
        "kv_down.weight": latent,
        "k_rotary.weight": rotary,
        "kv_norm.weight": given["kv_a_layernorm.weight"],
        "k_up.weight": k_up.flatten(0, 1),
        "v_up.weight": v_up.flatten(0, 1),
        "out.weight": given["o_proj.weight"],
    }
    names = {"q_a_proj": "q_down", "q_a_layernorm": "q_norm", "q_b_proj": "q_up", "q_proj": "q"}
    state |= {f"{mine}.weight": given[f"{n}.weight"] for n, mine in names.items() if f"{n}.weight" in given}
    module.load_state_dict(state)
    x = torch.randn(2, 6, M)
    angles = theirs.DeepseekV2RotaryEmbedding(config)(x, torch.arange(6)[None])
    mask = torch.full((6, 6), float("-inf")).triu(1)[None, None]
    expected = peer(x, attention_mask=mask, position_embeddings=angles)[0]
    torch.testing.assert_close(module(x, run_over(6, Rotary(pairs="interleaved"))), expected)


def test_rows_follow_beams_twice_in_a_row() -> None:
    """The second time they are moved in place; the values of a latent cache have a width of 0."""
    model = qkv.build(gpt()).eval()
    ids, moves = torch.randint(VOCAB, (4, 5)), ([1, 0, 2, 2], [3, 3, 0, 1])
    rows = torch.arange(4)
    with torch.no_grad():
        cache = model.start(4)
        model.step(ids, cache)
        for move in moves:
            cache.reorder(torch.tensor(move))
            rows = rows[torch.tensor(move)]
        found = model.step(ids[:, :1], cache)
        wanted = model(torch.cat([ids[rows], ids[:, :1]], 1))[:, -1]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
