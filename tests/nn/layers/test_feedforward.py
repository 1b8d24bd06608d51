"""Feed-forward layers: every activation by its formula, gated and not, with and without biases."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qkv.nn.layers.feedforward import ACTIVATIONS, FeedForward, NoFeedForward

FORMULAS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu-tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu-quick": lambda x: x / (1 + math.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "relu-squared": lambda x: max(x, 0.0) ** 2,
    "identity": lambda x: x,
}


def by_formula(activation: str, x: Tensor) -> Tensor:
    return torch.tensor([FORMULAS[activation](v) for v in x.flatten().tolist()], dtype=x.dtype).view_as(x)


def test_there_is_a_formula_for_every_activation() -> None:
    assert FORMULAS.keys() == ACTIVATIONS.keys()


# bench/.envs/huggingface/bin/python -c "import torch; from transformers.activations import ACT2FN
# for name in NAMES: print(name, ACT2FN[name](torch.linspace(-4, 4, 9).double()).tolist())"
TANH = [-7.02e-05, -0.0036374, -0.0454023, -0.158808, 0.0, 0.841192, 1.9545977, 2.9963626, 3.9999298]
HUB = {
    ("gelu", "gelu"): [-0.0001267, -0.0040497, -0.0455003, -0.1586553, 0.0, 0.8413447, 1.9544997, 2.9959503, 3.9998733],
    ("gelu_new", "gelu-tanh"): TANH,
    ("gelu_fast", "gelu-tanh"): TANH,
    ("gelu_pytorch_tanh", "gelu-tanh"): TANH,
    ("quick_gelu", "gelu-quick"): [
        *(-0.0044147, -0.0180713, -0.0643414, -0.1542042, 0.0),
        *(0.8457958, 1.9356586, 2.9819287, 3.9955853),
    ],
    ("relu2", "relu-squared"): [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 4.0, 9.0, 16.0],
    ("silu", "silu"): [-0.0719448, -0.1422776, -0.2384058, -0.2689414, 0.0, 0.7310586, 1.7615942, 2.8577224, 3.9280552],
}


@pytest.mark.parametrize("names", HUB, ids=" is ".join)
def test_the_hubs_activations_have_a_name_here(names: tuple[str, str]) -> None:
    x = torch.linspace(-4, 4, 9, dtype=torch.float64)
    wanted = torch.tensor(HUB[names], dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS[names[1]](x), wanted, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("activation", FORMULAS)
def test_outputs_match_the_equation(activation: str, gated: bool, bias: bool) -> None:
    spec = FeedForward(d_ff=10, activation=activation, gated=gated, bias=bias)  # type: ignore[arg-type]
    module = spec.module(6).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 3, 6, dtype=torch.float64)

    def linear(name: str, value: Tensor) -> Tensor:
        layer = getattr(module, name)
        out = value @ layer.weight.T
        return out + layer.bias if bias else out

    up = linear("up", x)
    hidden = by_formula(activation, linear("gate", x)) * up if gated else by_formula(activation, up)
    torch.testing.assert_close(module(x), linear("down", hidden))
    assert spec.cost(6).parameters == sum(p.numel() for p in module.parameters())
    assert spec.cost(6, tokens=5).flops == 5 * 2 * 6 * 10 * (3 if gated else 2)


def test_dropout_acts_on_hidden_activations_in_training_only() -> None:
    module = FeedForward(d_ff=64, dropout=0.5, activation="identity", bias=False).module(8)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(1, 1, 8)
    module.eval()
    assert torch.equal(module(x), module(x))
    module.train()
    hidden = x @ module.up.weight.T  # type: ignore[union-attr, operator]
    seen: list[Tensor] = []
    module.down.register_forward_pre_hook(lambda _, args: seen.append(args[0]))  # type: ignore[union-attr, operator]
    module(x)
    kept = seen[0] != 0
    assert 10 < kept.sum() < 54
    torch.testing.assert_close(seen[0][kept], (2 * hidden)[kept])


def test_the_off_value_has_no_parameters() -> None:
    assert NoFeedForward().cost(8, 5).flops == 0 and not list(NoFeedForward().module(8).parameters())


@pytest.mark.parametrize(
    "given, said",
    [
        ({"d_ff": 0}, "d_ff: input should be greater than 0, not 0"),
        ({"d_ff": 4, "dropout": -0.1}, "dropout: input should be greater than or equal to 0, not -0.1"),
        ({"d_ff": 4, "dropout": 1}, "dropout: input should be less than 1, not 1"),
        ({"d_ff": 4, "activation": "glu"}, "activation: input should be 'relu', 'gelu'.* not 'glu'"),
    ],
)
def test_wrong_values_are_refused(given: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FeedForward.from_dict(given)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_can_be_pickled(activation: str) -> None:
    assert pickle.loads(pickle.dumps(ACTIVATIONS[activation])) is ACTIVATIONS[activation]
