import pytest
import torch
from torch import nn
from train_stand_in import Tiny

from qkv.train.optimizer import SGD, AdamW, Optimizer


def names(optimizer: torch.optim.Optimizer) -> dict[float, set[str]]:
    return {
        group.get("decoupled_decay", group["weight_decay"]): set(group["param_names"])
        for group in optimizer.param_groups
    }


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_decay_spares_biases_norms_and_embeddings_and_tied_weights_come_once(kind):
    spec = Optimizer.from_dict({"kind": kind, "weight_decay": 0.3})
    plain = {"embedding.weight", "norm.weight", "norm.bias", "layer.bias"}
    assert names(spec.build(Tiny())) == {0.3: {"layer.weight"}, 0.0: plain}
    both = names(spec.replace(decay_embeddings=True).build(Tiny()))
    assert both[0.3] == {"layer.weight", "embedding.weight"}


def test_frozen_parameters_stay_out():
    model = Tiny()
    model.layer.weight.requires_grad_(False)
    assert "layer.weight" not in set().union(*names(AdamW().build(model)).values())
    with pytest.raises(ValueError, match="no trainable parameters"):
        AdamW().build(model.requires_grad_(False))


def one_step(spec: Optimizer, w: list[float], g: list[float], steps: int = 1) -> list[float]:
    model = nn.Linear(2, 1, bias=False)
    model.weight.data[:] = torch.tensor([w])
    optimizer = spec.build(model)
    for _ in range(steps):
        model.weight.grad = torch.tensor([g])
        optimizer.step()
    return model.weight[0].tolist()


def test_sgd_with_momentum_and_decoupled_decay_by_hand():
    # v1 = g, w1 = w (1 − lr λ) − lr v1; v2 = 0.5 v1 + g, w2 = w1 (1 − lr λ) − lr v2
    w, g = 1.0, 2.0
    w = w * 0.95 - 0.1 * g
    w = w * 0.95 - 0.1 * (0.5 * g + g)
    spec = SGD(lr=0.1, momentum=0.5, weight_decay=0.5)
    assert one_step(spec, [1.0, 1.0], [2.0, 2.0], steps=2) == pytest.approx([w, w])
    nesterov = SGD(lr=0.1, momentum=0.5, nesterov=True)
    assert one_step(nesterov, [1.0, 1.0], [2.0, 2.0]) == pytest.approx([1 - 0.1 * (2.0 + 0.5 * 2.0)] * 2)


def test_adamw_by_hand():
    # at the first step m̂ = g and v̂ = g², so the update is lr · sign(g), after the decay
    w = one_step(AdamW(lr=0.1, weight_decay=0.5), [1.0, 1.0], [3.0, -4.0])
    assert w == pytest.approx([0.95 - 0.1, 0.95 + 0.1])


def test_nesterov_needs_momentum():
    with pytest.raises(ValueError, match="momentum above 0"):
        SGD(momentum=0.0, nesterov=True).build(Tiny())


@pytest.mark.parametrize(
    "fields", [{"lr": -1.0}, {"lr": float("nan")}, {"betas": [0.9, 1.0]}, {"weight_decay": -0.1}, {"eps": 0}]
)
def test_values_out_of_range_are_refused(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        Optimizer.from_dict({"kind": "adamw", **fields})
