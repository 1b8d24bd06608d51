import copy

import pytest
import torch
from train_stand_in import Tiny, batch

from qkv.core.ranks import ALONE
from qkv.training.checkpoints.weights import model_tensors, optimizer_tensors
from qkv.training.gradients.clipping import update
from qkv.training.mixed_precision import MixedPrecision
from qkv.training.objective import NextToken
from qkv.training.optimizers import Optimizer
from qkv.training.strategy import Strategy


def gradients(model: Tiny, scale: float = 1.0) -> torch.Tensor:
    loss = NextToken()(model, batch(0))["loss"].sum * scale
    loss.backward()
    return loss.detach()


def setup(kind: str = "adamw", fused: bool = True):
    model = Tiny(dropout=0.0)
    optimizer = Optimizer.from_dict({"kind": kind, "lr": 0.1, "weight_decay": 0.1}).build(model)
    for group in optimizer.param_groups:
        group["fused"] = fused
    return model, optimizer, MixedPrecision("fp32", model, torch.device("cpu"))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("clip_value", [None, 0.1])
def test_a_bad_gradient_changes_nothing_even_on_the_first_step(kind, fused, poison, clip_value):
    model, optimizer, mixed = setup(kind, fused)
    fresh_model, fresh_optimizer, _ = setup(kind, fused)
    before = {name: t.clone() for name, t in model_tensors(model).items()}
    loss = gradients(model)
    model.layer.weight.grad[0, 0] = poison
    done = update(optimizer, loss, mixed, Strategy(model, ALONE), clip_norm=1.0, clip_value=clip_value)
    assert done.bad == 1.0 and not torch.isfinite(done.grad_norm)
    assert all(torch.equal(t, before[name]) for name, t in model_tensors(model).items())
    assert all(p.grad is None for p in model.parameters())
    # the next, good step is what it would have been without the bad one
    for m, o in ((model, optimizer), (fresh_model, fresh_optimizer)):
        assert update(o, gradients(m), mixed, Strategy(model, ALONE), clip_norm=1.0).bad == 0.0
    after, wanted = model_tensors(model), model_tensors(fresh_model)
    assert all(torch.equal(after[name], wanted[name]) for name in wanted)
    states = optimizer_tensors(optimizer), optimizer_tensors(fresh_optimizer)
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])


def test_a_bad_loss_with_good_gradients_changes_nothing():
    model, optimizer, mixed = setup()
    before = copy.deepcopy(model.state_dict())
    gradients(model)
    assert update(optimizer, torch.tensor(float("nan")), mixed, Strategy(model, ALONE)).bad == 1.0
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_clipping_by_norm_and_by_value():
    free, _, _ = setup()
    gradients(free)
    raw = torch.cat([p.grad.flatten() for p in free.parameters()])
    for clip_norm, clip_value in ((0.5, None), (None, 0.01), (0.05, 0.01)):
        model, optimizer, mixed = setup("sgd")
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 1.0
        for group in optimizer.param_groups:
            group["momentum"], group["decoupled_decay"] = 0.0, 0.0
        start = torch.cat([p.detach().flatten() for p in model.parameters()]).clone()
        done = update(optimizer, gradients(model), mixed, Strategy(model, ALONE), clip_norm, clip_value)
        wanted = raw if clip_value is None else raw.clamp(-clip_value, clip_value)
        if clip_norm is not None:
            wanted = wanted * min(1.0, clip_norm / float(wanted.norm()))
        moved = start - torch.cat([p.detach().flatten() for p in model.parameters()])
        torch.testing.assert_close(moved, wanted, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(done.grad_norm, raw.norm())  # reported before clipping
