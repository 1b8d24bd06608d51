"""How parameters begin: by (seed, name) alone, and with the statistics of each scheme."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.core.spec import Cost
from qkv.io.families import preset
from qkv.nn.layers.linear import Linear
from qkv.nn.models.build import build
from qkv.nn.models.initialization import (
    DeepNormGlorot,
    Glorot,
    Initialization,
    LeCun,
    Normal,
    T5Normal,
    initialize,
    parameter_seed,
)
from qkv.nn.models.placement import deepnorm_constants
from qkv.nn.models.transformer import Transformer
from qkv.nn.models.unfilled import Unfilled

SIZES = {"vocab_size": 40, "d_model": 16, "n_heads": 4}


def named(spec: Transformer, **options: object) -> dict[str, Tensor]:
    return dict(build(spec, **options).named_parameters())  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_model_and_another_another() -> None:
    spec = preset("gpt2", n_layers=2, **SIZES)
    a, b, c = (named(spec, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert all(not torch.equal(a[name], c[name]) for name in a if a[name].ndim == 2)


def test_numbers_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    build(preset("gpt2", n_layers=1, **SIZES))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_parameter_does_not_depend_on_what_else_there_is() -> None:
    """More layers, an encoder beside it, another head: what bears the same name begins the same."""
    spec = preset("transformer", n_layers=3, d_ff=24, **SIZES)
    whole = named(spec)
    smaller = named(preset("transformer", n_layers=2, d_ff=24, **SIZES))
    apart = named(spec.replace({"head.tied": False, "tie_embeddings": False}))
    alone = named(spec.replace({"encoder": None, "decoder.blocks.*.cross": None}))
    headless = named(spec.replace({"head": None}))
    for other in (smaller, apart, alone, headless):
        shared = [name for name in other if name in whole]
        assert len(shared) >= 20
        assert [name for name in shared if not torch.equal(whole[name], other[name])] == []


@pytest.mark.parametrize("scheme", [Glorot(), Normal(), T5Normal()])
def test_every_number_is_drawn_by_seed_and_name(scheme: Initialization) -> None:
    spec = preset("transformer", n_layers=2, d_ff=24, **SIZES).replace(initialization=scheme)
    model = build(spec, seed=9)
    modules = dict(model.named_modules())
    for name, value in model.named_parameters():
        kind, size = scheme.draw(modules[name.rpartition(".")[0]], name.rpartition(".")[2], value, 2)
        generator = torch.Generator().manual_seed(parameter_seed(9, name))
        expected = {
            "normal": lambda s=size, v=value, g=generator: torch.empty(v.shape).normal_(0, s, generator=g),
            "uniform": lambda s=size, v=value, g=generator: torch.empty(v.shape).uniform_(-s, s, generator=g),
            "constant": lambda s=size, v=value: torch.full(v.shape, float(s)),
        }[kind]()
        assert torch.equal(value, expected), name


def test_the_order_in_which_parts_are_made_is_nothing() -> None:
    class Two(nn.Module):
        def __init__(self, names: list[str]) -> None:
            super().__init__()
            for name in names:
                self.add_module(name, Linear(5, 4))

    with Unfilled():
        models = [Two(names) for names in (["a", "b"], ["b", "a"])]
    for model in models:
        initialize(model, Glorot(), seed=1, n_layers=1)
    first, second = (model.state_dict() for model in models)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["a.weight"], first["b.weight"])


def test_dtypes_begin_from_the_same_numbers() -> None:
    spec = preset("gpt2", n_layers=1, **SIZES)
    full, half, double = (named(spec, dtype=d) for d in (torch.float32, torch.bfloat16, torch.float64))
    for name in full:
        assert torch.equal(full[name].bfloat16(), half[name]) and torch.equal(full[name].double(), double[name])


def wide(scheme: Initialization, position: str = "learned") -> tuple[dict[str, Tensor], int]:
    sizes = {"vocab_size": 500, "d_model": 128, "n_heads": 4, "n_layers": 2, "d_ff": 512, "max_positions": 64}
    spec = preset("gpt2", position=position, **sizes).replace({"initialization": scheme, "head.tied": False})
    return named(spec), 128


def assert_std(value: Tensor, std: float) -> None:
    n = value.numel()
    assert value.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * n))
    assert abs(value.mean().item()) < 5 * std / math.sqrt(n)


def test_glorot_is_uniform_within_its_bound_and_embeddings_are_of_unit_length() -> None:
    p, d = wide(Glorot())
    for part, fans in (("attention.q", (d, d)), ("feedforward.up", (d, 4 * d)), ("feedforward.down", (4 * d, d))):
        bound, value = math.sqrt(6 / sum(fans)), p[f"decoder.blocks.0.{part}.weight"]
        assert 0.99 * bound < value.abs().max() <= bound
        assert_std(value, bound / math.sqrt(3))
    assert_std(p["decoder.embedding.weight"], d**-0.5)


def test_gpt2_scales_what_writes_to_the_residual_stream() -> None:
    p, _ = wide(Normal())
    for part, std in (
        ("attention.q", 0.02),
        ("feedforward.up", 0.02),
        ("attention.out", 0.01),
        ("feedforward.down", 0.01),
    ):
        assert_std(p[f"decoder.blocks.1.{part}.weight"], std)  # 0.02 / √(2 · 2 layers) = 0.01
    for name in ("decoder.embedding.weight", "decoder.position.weight", "head.weight"):
        assert_std(p[name], 0.02)
    unscaled, _ = wide(Normal(scale_residual=False))
    assert_std(unscaled["decoder.blocks.1.attention.out.weight"], 0.02)


def test_deepnorm_is_the_papers() -> None:
    """DeepNet (Wang et al. 2022), figure 2: α and β of each stack, β on values, outputs and feed-forward layers."""
    spec = preset("transformer", placement="deepnorm", n_layers=6, **{**SIZES, "d_model": 256})
    assert [stack.blocks[0].placement.skip for _, stack in spec.stacks()] == pytest.approx(
        [0.81 * 6 ** (5 / 16), 18**0.25]
    )
    p = named(spec)
    for stack, beta in (("encoder", 0.87 * 6 ** (-5 / 16)), ("decoder", 72**-0.25)):
        for part, gain in (("attention.q", 1), ("attention.k", 1), ("attention.v", beta), ("attention.out", beta)):
            assert_std(p[f"{stack}.blocks.3.{part}.weight"], gain * math.sqrt(2 / 512))
        wide = p[f"{stack}.blocks.3.feedforward.up.weight"]
        assert_std(wide, beta * math.sqrt(2 / sum(wide.shape)))
    alone = deepnorm_constants(0, 8)
    assert alone == {"decoder": (2.0, pytest.approx(64**-0.25))}


def test_t5_has_the_missing_scale_in_the_queries() -> None:
    """Mesh TensorFlow's T5: N(0, 1/fan_in), and queries N(0, 1/(d_model · d_head)) as its scores go unscaled."""
    p, d = wide(T5Normal(), "t5")
    for part, fan_in in (("attention.k", d), ("attention.out", d), ("feedforward.up", d), ("feedforward.down", 4 * d)):
        assert_std(p[f"decoder.blocks.0.{part}.weight"], fan_in**-0.5)
    assert_std(p["decoder.embedding.weight"], 1.0)
    assert_std(p["decoder.blocks.0.attention.q.weight"], (d * d // 4) ** -0.5)


def test_lecun_leaves_queries_as_large_as_keys() -> None:
    """PaLM (Chowdhery et al. 2022, §5): N(0, 1/fan_in), and N(0, 1) for the table."""
    p, d = wide(LeCun(), "t5")
    for part, fan_in in (("attention.q", d), ("attention.k", d), ("feedforward.down", 4 * d)):
        assert_std(p[f"decoder.blocks.0.{part}.weight"], fan_in**-0.5)
    assert_std(p["decoder.embedding.weight"], 1.0)


def test_norms_begin_as_the_identity_and_biases_at_zero() -> None:
    p, _ = wide(Normal())
    for name, value in p.items():
        if value.ndim == 1:
            assert (value == (1.0 if "norm" in name and name.endswith("weight") else 0.0)).all(), name


def test_stacked_experts_begin_as_single_ones_would() -> None:
    layer = {"kind": "moe", "n_experts": 4, "d_ff": 96, "bias_rate": 0.1}
    spec = preset("llama", vocab_size=40, d_model=64, n_layers=3, n_heads=4, max_positions=8)
    spec = spec.replace({"decoder.blocks.*.feedforward": layer})
    for scheme, up, down in (
        (Normal(), 0.02, 0.02 / math.sqrt(6)),
        (Glorot(), math.sqrt(2 / (64 + 96)), math.sqrt(2 / (64 + 96))),
        (T5Normal(), 64**-0.5, 96**-0.5),
    ):
        model = build(spec.replace(initialization=scheme))
        experts = model.decoder.blocks[0].feedforward  # type: ignore[union-attr]
        assert experts.up.weight.std().item() == pytest.approx(up, rel=0.03)
        assert experts.down.weight.std().item() == pytest.approx(down, rel=0.03)
        assert not torch.equal(experts.up.weight[0], experts.up.weight[1])
        assert (experts.router.bias == 0).all()


# -- what modules from outside begin with ---------------------------------------------------------------------------------


class Plain(qkv.FeedForwardLayer, kind="plain-initial-test"):
    """PyTorch's own layers, a parameter that is left unfilled, one that is half filled, and one that is said."""

    def module(self, d_model: int) -> nn.Module:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.conv = nn.LayerNorm(d_model), nn.Conv1d(d_model, d_model, 1)
                self.gate = nn.Parameter(torch.full((d_model,), 0.25))
                self.left = nn.Parameter(torch.empty(d_model, d_model))
                self.mixed = nn.Parameter(torch.empty(2, d_model))
                self.said = nn.Parameter(torch.zeros(d_model))
                with torch.no_grad():
                    self.mixed[0] = 7.0

            def initial(self, name: str) -> Tensor | None:
                return torch.arange(d_model) / 3 if name == "said" else None

            def forward(self, x: Tensor) -> Tensor:
                x = self.conv(self.norm(x).mT).mT * self.gate + x @ self.left
                return x + self.said + self.mixed.sum(0)

        return Net()

    def cost(self, d_model: int, tokens: int = 0) -> Cost:
        return Cost(2 * d_model**2 + 7 * d_model)


OUTSIDE = preset("gpt2", n_layers=2, **SIZES).replace({"decoder.blocks.*.feedforward": Plain()})


def test_what_a_module_filled_itself_is_kept_and_the_rest_is_drawn() -> None:
    model = build(OUTSIDE, seed=3)
    net: Any = model.decoder.blocks[1].feedforward
    assert torch.equal(net.norm.weight, torch.ones(16)) and torch.equal(net.norm.bias, torch.zeros(16))
    assert torch.equal(net.gate, torch.full((16,), 0.25))
    assert torch.equal(net.said, torch.arange(16) / 3)
    assert net.conv.bias.abs().min() > 0 and net.conv.weight.std() > 0.1  # PyTorch's, not N(0, 0.02²)
    assert 0.015 < net.left.std() < 0.025  # N(0, 0.02²), which is GPT-2's
    assert torch.equal(net.mixed[0], torch.full((16,), 7.0)) and 0 < net.mixed[1].abs().max() < 0.1
    assert model(torch.tensor([[1, 2]])).isfinite().all()


def test_what_modules_draw_themselves_follows_from_the_seed() -> None:
    first, again, other = (named(OUTSIDE, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    conv = "decoder.blocks.0.feedforward.conv.weight"
    assert not torch.equal(first[conv], other[conv])
    assert not torch.equal(first[conv], first[conv.replace("0", "1")])
    before = torch.get_rng_state()
    build(OUTSIDE)
    assert torch.equal(torch.get_rng_state(), before)


def test_on_the_meta_device_nothing_is_filled() -> None:
    assert all(value.is_meta for value in named(OUTSIDE, device="meta").values())


class Said(nn.Module):
    """A module that says what its parameter begins with, whatever stands there."""

    def __init__(self, initial: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((2, 3), 9.0))
        self.initial = initial


def test_initial_gives_numbers_and_tensors_of_the_right_shape() -> None:
    rows = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    for initial, expected in ((lambda name: 0.5, torch.full((2, 3), 0.5)), (lambda name: rows, rows)):
        model = Said(initial)
        initialize(model, Normal(), seed=0, n_layers=1)
        assert torch.equal(model.weight, expected)
    with pytest.raises(ValueError, match=r"initial\(\) returned shape \(3,\) for weight, whose shape is \(2, 3\)"):
        initialize(Said(lambda name: rows[0]), Normal(), seed=0, n_layers=1)


@pytest.mark.parametrize("part", [None, 3, nn.Parameter(torch.ones(2)), nn.Identity()])
def test_an_attribute_that_is_called_initial_is_no_rule(part: Any) -> None:
    model = Said(part)
    initialize(model, Normal(), seed=0, n_layers=1)
    assert torch.equal(model.weight, torch.full((2, 3), 9.0))


def test_the_cells_of_recurrent_models_are_drawn_by_the_model() -> None:
    """Though PyTorch's layers, which they are, fill themselves."""
    model = build(preset("seq2seq", vocab_size=20, d_e=6, d_h=8, d_s=8), seed=5)
    cells = {name: value for name, value in model.named_parameters() if ".rnn." in name}
    assert len(cells) > 4
    for name, value in cells.items():
        generator = torch.Generator().manual_seed(parameter_seed(5, name))
        assert torch.equal(value, torch.empty(value.shape).uniform_(-0.08, 0.08, generator=generator)), name


SCHEMES: dict[str, Initialization] = {
    "glorot": Glorot(),
    "normal": Normal(),
    "lecun": LeCun(),
    "t5": T5Normal(),
    "deepnorm": DeepNormGlorot(decoder_layers=2),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_products_of_low_rank_begin_as_large_as_full_matrices(scheme: str) -> None:
    sizes = {"vocab_size": 40, "d_model": 128, "n_heads": 4, "n_layers": 2}
    spec = preset("gpt2", **sizes).replace(initialization=SCHEMES[scheme])
    ranks = {"attention.low_rank": {"q": 40, "v": 40, "out": 40}, "feedforward.low_rank": {"up": 40, "down": 40}}
    low = build(spec.replace({f"decoder.blocks.*.{path}": value for path, value in ranks.items()}))
    full = build(spec)
    for path in ("attention.q", "attention.v", "attention.out", "feedforward.up", "feedforward.down"):
        name = f"decoder.blocks.0.{path}"
        product, matrix = low.get_submodule(name).plain().weight, full.get_submodule(name).weight
        assert float(product.std()) == pytest.approx(float(matrix.std()), rel=0.06), path
        assert abs(float(product.mean())) < 0.05 * float(product.std()), path
