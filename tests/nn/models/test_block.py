"""Blocks: each placement by its equation and against PyTorch's layers; what is off does nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.core.layout import Layout
from qkv.io.families import preset
from qkv.nn.attention.mixer import Pass
from qkv.nn.layers.dropout import stochastic_depth
from qkv.nn.layers.norm import Norm
from qkv.nn.models.block import Block, BlockModule
from qkv.nn.models.build import build
from qkv.nn.models.placement import NormsOf, Placement
from qkv.nn.models.transformer import Transformer
from qkv.nn.positions.base import PositionModule

M, MEMORY = 8, torch.randn(2, 3, 8, dtype=torch.float64)
X = torch.randn(2, 5, M, dtype=torch.float64)


def made(**options: Any) -> BlockModule:
    given = {"attention": {"kind": "attention", "n_heads": 2}, "feedforward": {"kind": "feedforward", "d_ff": 16}}
    spec = Block.from_dict({**given, **options})
    module = spec.module(M).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    assert spec.cost(M).parameters == sum(p.numel() for p in module.parameters())
    return module


def run() -> Pass:
    run = Pass.over(Layout.full(5), PositionModule())
    run.memory, run.memory_layout = MEMORY, Layout.full(3)
    return run


def by_equation(module: BlockModule, x: Tensor, cross: bool) -> Tensor:
    """The docstring's equations, one line each."""
    parts = {"attention": lambda y: module.attention(y, run()), "feedforward": module.feedforward}
    if cross:
        parts = {"attention": parts["attention"], "cross": lambda y: module.cross(y, run()), **parts}  # type: ignore[misc]
    keep = 1.0 if module.residual else 0.0
    norm = module.norm
    if module.placement.kind == "parallel":
        second = norm["feedforward"] if "feedforward" in norm else norm["attention"]
        return keep * x + parts["attention"](norm["attention"](x)) + parts["feedforward"](second(x))
    for name, f in parts.items():
        if module.placement.kind == "post":
            x = norm[name](keep * x + f(x))
        elif module.placement.kind == "deepnorm":
            x = norm[name](1.7 * keep * x + f(x))
        elif module.placement.kind == "res-post":
            x = keep * x + module.norm_after[name](f(x)) if module.norm_after else keep * x + f(x)
        elif module.placement.kind == "norms":
            x = module.norm_sum[name](keep * x + module.norm_after[name](f(norm[name](x))))
        elif module.placement.kind == "pre":
            x = keep * x + f(norm[name](x))
        else:
            x = keep * x + module.norm_after[name](f(norm[name](x)))
    return x


PLACEMENTS = [
    {"placement": "pre"},
    {"placement": "post"},
    {"placement": "sandwich"},
    {"placement": "parallel"},
    {"placement": "parallel", "shared_norm": True},
    {"placement": "res-post"},
    {"placement": {"kind": "deepnorm", "alpha": 1.7}},
    {"placement": {"kind": "norms", "before": "rmsnorm", "after": "layernorm", "sum": "rmsnorm"}},
]
WITHOUT_NORMS = [*PLACEMENTS[:-1], {"placement": {"kind": "norms", "before": "none", "after": "none", "sum": "none"}}]


@pytest.mark.parametrize("residual", ["add", "none"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "none"])
@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_outputs_match_the_equations(placement: dict[str, Any], norm: str, residual: str) -> None:
    module = made(**placement, norm=norm, residual=residual)
    torch.testing.assert_close(module(X, run()), by_equation(module, X, cross=False))


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich"])
def test_the_equations_with_cross_attention(placement: str) -> None:
    module = made(placement=placement, cross={"kind": "attention", "n_heads": 2})
    torch.testing.assert_close(module(X, run()), by_equation(module, X, cross=True))


def test_the_residual_multiplier_is_of_what_is_added() -> None:
    plain, scaled = made(feedforward="none"), made(feedforward="none", residual_multiplier=0.22)
    scaled.load_state_dict(plain.state_dict())
    torch.testing.assert_close(scaled(X, run()) - X, 0.22 * (plain(X, run()) - X))


def test_the_norm_of_the_attention_may_be_another_or_none() -> None:
    plain, without = made(), made(attention_norm="none")
    assert isinstance(without.norm["attention"], torch.nn.Identity) and "norm.attention.weight" in plain.state_dict()
    torch.testing.assert_close(without(X, run()), by_equation(without, X, cross=False))
    assert not torch.allclose(without(X, run()), plain(X, run()))
    root = made(attention_norm="rmsnorm", placement="sandwich")
    assert {type(root.norm[name]).__name__ for name in ("attention", "feedforward")} == {
        "RMSNormalize",
        "LayerNormalize",
    }
    assert type(root.norm_after["attention"]).__name__ == "RMSNormalize"
    with pytest.raises(ValueError, match="placement='norms' has its own norms"):
        made(placement={"kind": "norms", "after": "layernorm"}, attention_norm="rmsnorm")


def test_a_placement_from_outside() -> None:
    """Two streams, of which sublayers read the sum and write to one each."""

    class Twin(Placement, kind="twin-of-this-test"):
        streams = 2

        def norms(self, norm: Norm) -> NormsOf:
            return NormsOf(before=norm)

        def forward(self, block: Any, x: Any, run: Pass, states: Any) -> Any:
            x = list(x)
            for i, name in enumerate(block.sublayers):
                x[i] = x[i] + block.branch(name, x[0] + x[1], run, states.get(name))
            return torch.stack(x)

        def leave(self, x: Tensor) -> Tensor:
            return x.sum(0)

    spec = preset("gpt", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16)
    spec = spec.replace({"decoder.blocks.*.placement": Twin()})
    model, ids = build(spec).eval(), torch.randint(11, (1, 7))
    assert Transformer.from_json(spec.to_json()) == spec
    cache = model.start(1)
    stepped = torch.stack([model.step(ids[:, i : i + 1], cache) for i in range(7)], 1)
    torch.testing.assert_close(stepped, model(ids))
    del Placement.kinds["twin-of-this-test"]


def test_functions_are_applied_to_blocks_as_to_any_module() -> None:
    names: list[str] = []
    made().apply(lambda module: names.append(type(module).__name__))
    assert names[-1] == "BlockModule" and "Linear" in names


def test_placements_differ() -> None:
    outs = []
    for placement in PLACEMENTS[:4]:
        torch.manual_seed(0)
        module = made(**placement)
        for parameter in module.parameters():  # the same weights in each, by shape
            nn.init.constant_(parameter, 0.3) if parameter.ndim == 1 else nn.init.normal_(
                parameter, generator=torch.Generator().manual_seed(parameter.numel())
            )
        outs.append(module(X, run()))
    for i, a in enumerate(outs):
        assert all(not torch.allclose(a, b, atol=1e-3) for b in outs[i + 1 :])


@pytest.mark.parametrize("norm_first", [False, True])
def test_it_is_pytorchs_decoder_layer(norm_first: bool) -> None:
    module = made(placement="pre" if norm_first else "post", cross={"kind": "attention", "n_heads": 2})
    peer = nn.TransformerDecoderLayer(M, 2, 16, 0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    with torch.no_grad():
        for theirs, mine in ((peer.self_attn, module.attention), (peer.multihead_attn, module.cross)):
            assert mine is not None
            theirs.in_proj_weight.copy_(torch.cat([mine.q.weight, mine.k.weight, mine.v.weight]))
            theirs.in_proj_bias.copy_(torch.cat([mine.q.bias, mine.k.bias, mine.v.bias]))
            theirs.out_proj.load_state_dict(mine.out.state_dict())
        for layer, linear in ((peer.linear1, module.feedforward.up), (peer.linear2, module.feedforward.down)):
            layer.load_state_dict(linear.state_dict())  # type: ignore[union-attr]
        for norm, name in ((peer.norm1, "attention"), (peer.norm2, "cross"), (peer.norm3, "feedforward")):
            norm.load_state_dict(module.norm[name].state_dict())
    torch.testing.assert_close(module(X, run()), peer(X, MEMORY))


@pytest.mark.parametrize("part", ["attention", "feedforward"])
def test_a_part_that_is_off_adds_nothing(part: str) -> None:
    """Ablation: without a sublayer the block is the other one alone, and not the other one plus a copy of x."""
    module = made(**{part: "none"}, placement="pre")
    y = module.norm["feedforward" if part == "attention" else "attention"](X)
    rest = module.feedforward(y) if part == "attention" else module.attention(y, run())
    torch.testing.assert_close(module(X, run()), X + rest)


@pytest.mark.parametrize("placement", ["pre", "sandwich", "parallel"])
def test_all_off_is_the_identity(placement: str) -> None:
    module = made(attention="none", feedforward="none", placement=placement)
    torch.testing.assert_close(module(X, run()), X)


def test_dropout_acts_on_what_is_added_and_spares_the_residual() -> None:
    module = made(dropout=0.5, norm="none", feedforward={"kind": "feedforward", "d_ff": 4, "bias": False}).train()
    nn.init.zeros_(module.feedforward.down.weight)  # type: ignore[union-attr, arg-type]
    attention, added = module.attention(X, run()), module(X, run()) - X
    kept = added.abs() > 1e-9
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(added[kept], (2 * attention)[kept])
    module.eval()
    torch.testing.assert_close(module(X, run()), X + attention)


@pytest.mark.parametrize(
    "given, said",
    [
        (
            {"placement": "parallel", "cross": {"kind": "attention", "n_heads": 2}},
            "a parallel block has no place for cross-attention; choose pre, post or sandwich",
        ),
        ({"shared_norm": True}, "shared_norm belongs to placement='parallel'"),
        ({"placement": "before"}, "there is no placement 'before'"),
        ({"dropout": 1.5}, "dropout: input should be less than 1, not 1.5"),
        ({"feedforward": "mlp"}, "there is no feedforward 'mlp'; .*feedforward"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made(**given)


# -- stochastic depth and layer scale -------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", WITHOUT_NORMS, ids=str)
def test_layer_scale_multiplies_what_is_added(placement: dict[str, Any]) -> None:
    plain, scaled = made(**placement, norm="none"), made(**placement, norm="none", layer_scale=0.1)
    for scale in scaled.scale.values():
        assert scale.initial("weight") == 0.1  # type: ignore[operator]
        nn.init.constant_(scale.weight, 0.5)  # type: ignore[arg-type]
    for name in plain.sublayers:
        getattr(scaled, name).load_state_dict(getattr(plain, name).state_dict())
    with torch.no_grad():
        plain.attention.out.weight *= 0.5  # type: ignore[union-attr, operator]
        plain.attention.out.bias *= 0.5  # type: ignore[union-attr, operator]
        plain.feedforward.down.weight *= 0.5  # type: ignore[union-attr, operator]
        plain.feedforward.down.bias *= 0.5  # type: ignore[union-attr, operator]
    torch.testing.assert_close(scaled(X, run()), plain(X, run()))


def test_stochastic_depth_drops_whole_samples_and_grows_the_others() -> None:
    y = torch.ones(4000, 3, 2)
    torch.manual_seed(0)
    out = stochastic_depth(y, 0.25, Layout.full(3))
    assert (out == out[:, :1, :1]).all() and out.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert out.mean().item() == pytest.approx(1, abs=0.03)
    torch.manual_seed(0)
    assert torch.equal(stochastic_depth(y, 0.25, Layout.full(3)), out)


def test_stochastic_depth_takes_packed_documents_one_by_one() -> None:
    layout = Layout.packed([[2, 3, 1]] * 500)
    out = stochastic_depth(torch.ones(500, 6, 1), 0.5, layout)[..., 0]
    assert (out[:, 0] == out[:, 1]).all() and (out[:, 2] == out[:, 3]).all() and (out[:, 3] == out[:, 4]).all()
    for a, b in ((0, 2), (2, 5), (0, 5)):
        assert 0.4 < (out[:, a] == out[:, b]).double().mean() < 0.6


@pytest.mark.parametrize("placement", WITHOUT_NORMS, ids=str)
def test_stochastic_depth_skips_branches_in_training_and_none_in_evaluation(placement: dict[str, Any]) -> None:
    module = made(**placement, norm="none", drop_path=0.5)
    whole = module.eval()(X, run())
    torch.testing.assert_close(whole, by_equation(module, X, cross=False))
    torch.manual_seed(0)
    outs = [module.train()(X, run()) for _ in range(40)]
    skipped = X * module.placement.skip * module.placement.skip  # by both sublayers
    assert any(torch.equal(out[0], skipped[0]) and not torch.equal(out[1], skipped[1]) for out in outs), (
        "a row by itself"
    )
    assert torch.equal(module.eval()(X, run()), whole)
    with pytest.raises(ValueError, match="drop_path needs a residual connection, and residual='none' has none"):
        made(**placement, residual="none", drop_path=0.5)
