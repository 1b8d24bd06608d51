"""What every optimizer must do, whatever its equation; a kind joins by being registered, with a line in SPECS."""

import copy
import os
import signal
from functools import cache

import pytest
import torch
from fast_subset import diagonals
from torch import nn
from train_stand_in import Tiny, batch, open_stream, train

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE
from qkv.training.checkpoints.checkpoint import MODEL, OPTIMIZER
from qkv.training.checkpoints.weights import load_model, load_optimizer, model_tensors, optimizer_tensors
from qkv.training.gradients.clipping import update
from qkv.training.mixed_precision import MixedPrecision
from qkv.training.objective import NextToken
from qkv.training.optimizers import Optimizer
from qkv.training.settings import Training
from qkv.training.step import Stepper
from qkv.training.strategy import Strategy

SPECS = {
    "adamw": {"kind": "adamw", "lr": 0.02},
    "adamw-8bit": {"kind": "adamw-8bit", "lr": 0.02, "min_size": 0, "block": 16, "embeddings": True},
    "sgd": {"kind": "sgd", "lr": 0.3},
    "sgd, plain": {"kind": "sgd", "lr": 1.0, "momentum": 0.0},
    "adagrad": {"kind": "adagrad", "lr": 0.1},
    "adafactor": {"kind": "adafactor", "lr": 0.05},
    "adafactor, momentum": {"kind": "adafactor", "lr": 0.05, "beta1": 0.9, "relative_step": True},
    "lion": {"kind": "lion", "lr": 0.01},
    "muon": {"kind": "muon", "lr": 0.02},
}
each_kind = pytest.mark.parametrize("name", SPECS)


def make(name: str, model: nn.Module) -> torch.optim.Optimizer:
    return Optimizer.from_dict(SPECS[name]).build(model)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(t, other[key]) for key, t in one.items())


def test_every_kind_is_here():
    ours = {kind for kind, cls in Optimizer.kinds.items() if cls.__module__.startswith("qkv.")}
    assert ours == {spec["kind"] for spec in SPECS.values()}


@each_kind
def test_it_learns(name):
    """Each label follows from its token alone, ln 13 = 2.56 nats at first."""
    model = Tiny(dropout=0.0)
    training = Training.from_dict({"optimizer": SPECS[name], "schedule": "linear", "max_steps": 150})
    stepper = Stepper(model, NextToken(), training, ALONE)
    for step in range(1, 151):
        loss = stepper.take([batch(step)], training.optimizer.lr * training.schedule.factor(step, 150)).loss
    assert loss < 0.7


def gradients(model: nn.Module, index: int) -> torch.Tensor:
    loss = NextToken()(model, batch(index))["loss"].sum
    loss.backward()
    return loss.detach()


@each_kind
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("first", [True, False])
def test_a_bad_step_changes_nothing(name, poison, first):
    model, mixed = Tiny(dropout=0.0), MixedPrecision("fp32", Tiny(), torch.device("cpu"))
    optimizer = make(name, model)
    if not first:
        update(optimizer, gradients(model, 0), mixed, Strategy(model, ALONE), clip_norm=1.0)
    before = copy.deepcopy((model_tensors(model), optimizer_tensors(optimizer)))
    loss = gradients(model, 1)
    model.layer.weight.grad[0, 0] = poison
    assert update(optimizer, loss, mixed, Strategy(model, ALONE), clip_norm=1.0).bad == 1.0
    assert same(model_tensors(model), before[0]) and same(optimizer_tensors(optimizer), before[1])


@pytest.mark.parametrize(("name", "precision"), diagonals(SPECS, ["fp32", "fp16"], every=2))
def test_resumed_is_uninterrupted(tmp_path, name, precision):
    changes = {"optimizer": SPECS[name], "precision": precision}
    whole = train(tmp_path / "whole", **changes)
    out, stops = tmp_path / "stopped", iter([5, 13])

    def interrupted(position):
        stop = next(stops, None)
        for one in open_stream(position):
            if one.position["next"] == stop:
                os.kill(os.getpid(), signal.SIGINT)
            yield one

    outcome = train(out, stream=interrupted, **changes)
    while outcome.interrupted:
        outcome = train(out, Tiny(seed=5), stream=interrupted, resume=True, **changes)
    for file in (MODEL, OPTIMIZER):
        assert (outcome.checkpoint / file).read_bytes() == (whole.checkpoint / file).read_bytes()


class Shapes(nn.Module):
    """A number, a vector, matrices, a stack of matrices, a part that the loss never sees, and a tied pair."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = {"number": (), "vector": (5,), "matrix": (5, 7), "column": (5, 1), "stack": (3, 5, 7), "unused": (7, 5)}
        for name, size in sizes.items():  # small, so the loss is nowhere flat
            self.register_parameter(name, nn.Parameter(torch.randn(size) / 3))
        self.tied = self.matrix

    def forward(self) -> torch.Tensor:
        x = self.stack.sum(0) @ self.tied.mT * self.number + self.matrix.sum(1) + self.column
        return torch.tanh(x * self.vector - 1.0).mean()


@each_kind
def test_parameters_of_all_shapes_and_one_without_gradients(name):
    model = Shapes()
    optimizer = make(name, model)
    start = {key: t.clone() for key, t in model_tensors(model).items()}
    for _ in range(3):
        model().backward()
        optimizer.step()
        optimizer.zero_grad()
    after = model_tensors(model)
    assert "tied" not in after and after.keys() == start.keys()
    assert {key for key, t in after.items() if torch.equal(t, start[key])} == {"unused"}
    assert all(torch.isfinite(t).all() for t in after.values())


@each_kind
def test_its_state_goes_over_to_another_by_name_and_by_pytorchs_own_dictionary(name):
    def steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
        for _ in range(2):
            model().backward()
            optimizer.step()
            optimizer.zero_grad()
        return {key: t.clone() for key, t in model_tensors(model).items()}

    model = Shapes()
    optimizer = make(name, model)
    steps(model, optimizer)
    others = [Shapes(), Shapes()]
    seconds = [make(name, other) for other in others]
    for other in others:
        load_model(other, model_tensors(model))
    load_optimizer(seconds[0], {key: t.clone() for key, t in optimizer_tensors(optimizer).items()})
    seconds[1].load_state_dict(copy.deepcopy(optimizer.state_dict()))
    wanted = steps(model, optimizer)
    for other, second in zip(others, seconds, strict=True):
        assert same(steps(other, second), wanted)
        assert same(optimizer_tensors(second), optimizer_tensors(optimizer))


@each_kind
def test_a_rate_of_zero_moves_nothing_and_rates_are_shares_of_it(name):
    model = Tiny(dropout=0.0)
    training = Training.from_dict({"optimizer": {**SPECS[name], "rates": {"layer.weight": 0.25}}})
    stepper = Stepper(model, NextToken(), training, ALONE)
    before = {key: t.clone() for key, t in model_tensors(model).items()}
    stepper.take([batch(0)], 0.0)
    assert same(model_tensors(model), before)
    stepper.take([batch(0)], 0.4)
    rates = {name: g["lr"] for g in stepper.optimizer.param_groups for name in g["param_names"]}
    assert rates == {**dict.fromkeys(rates, 0.4), "layer.weight": 0.1} and stepper.lr == 0.4


# -- on a language model -------------------------------------------------------------------------------------------

LENGTH, ROWS, STEPS = 32, 8, 200


@cache
def language_batch(index: int) -> Batch:
    """Every token follows from the two before it, nine times in ten."""
    made = torch.Generator().manual_seed(index)
    ids = torch.randint(0, 32, (ROWS, LENGTH + 1), generator=made)
    for t in range(2, LENGTH + 1):
        follows = torch.rand(ROWS, generator=made) < 0.9
        ids[:, t] = torch.where(follows, (3 * ids[:, t - 1] + 5 * ids[:, t - 2]) % 32, ids[:, t])
    inputs = {"ids": ids[:, :-1].contiguous(), "layout": Layout.full(LENGTH)}
    return Batch(inputs, ids[:, 1:].contiguous(), {"loss": ROWS * LENGTH}, ROWS * LENGTH)


def trained(**optimizer: object) -> float:
    """The mean loss of a small Llama over its last steps, the same for all but for its optimizer."""
    sizes = {"d_model": 64, "n_layers": 2, "n_heads": 4, "d_ff": 128, "vocab_size": 32, "max_positions": 64}
    model = qkv.build(qkv.preset("llama", **sizes), seed=0).train()
    schedule = {"kind": "cosine", "warmup": 20}
    training = Training.from_dict({"optimizer": optimizer, "schedule": schedule, "max_steps": STEPS})
    stepper = Stepper(model, NextToken(), training, ALONE)
    losses = []
    for step in range(1, STEPS + 1):
        rate = training.optimizer.lr * training.schedule.factor(step, STEPS)
        losses.append(stepper.take([language_batch(step)], rate).loss)
    return float(torch.stack(losses[-20:]).mean())


@pytest.mark.slow
def test_eight_bits_and_muon_beside_adamw_on_a_language_model():
    same = {"lr": 0.003, "betas": [0.9, 0.95], "weight_decay": 0.1}
    adamw, packed = trained(kind="adamw", **same), trained(kind="adamw-8bit", **same)
    muon = trained(kind="muon", **{**same, "lr": 0.01})
    print(f"adamw {adamw:.4f}, adamw-8bit {packed:.4f}, muon {muon:.4f}")
    assert adamw < 3.2  # ln 32 = 3.47
    assert abs(packed - adamw) < 0.02 * adamw
    assert muon < adamw


@each_kind
def test_state_bytes_match_a_matrix_and_a_table(name: str) -> None:
    spec = Optimizer.from_dict(SPECS[name])
    model = qkv.build(qkv.preset("gpt2", vocab_size=512, d_model=64, n_layers=1, n_heads=2, max_positions=16), seed=0)
    optimizer = spec.build(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = optimizer_tensors(optimizer)
    paths = ("decoder.blocks.0.feedforward.up.weight", "decoder.embedding.weight")
    for path, wanted in zip(paths, spec.state_bytes, strict=True):
        size = sum(x.numel() * x.element_size() for key, x in state.items() if key.startswith(f"{path}/"))
        assert size / model.get_parameter(path).numel() == pytest.approx(wanted, abs=0.1)
