import pytest
import torch
from torch import nn

from qkv.training.optimizers import Adafactor

# transformers 5.23.0, `Adafactor(params, lr=…, relative_step=…, beta1=…)` with its defaults otherwise: the matrix and the
# vector after three steps with the gradients below. Its relative step is at most 1e-2.
THEIRS = {
    (0.0, False): (
        [[-0.5, -0.450131, -0.29729, -0.209762], [-0.091969, 0.018067, 0.137535, 0.13874]],
        [0.307917, 0.389188, 0.51136, 0.601383],
        [0.443462, -0.193462],
    ),
    (0.0, True): (
        [[-0.5, -0.409946, -0.299545, -0.201937], [-0.098365, 0.003623, 0.107424, 0.187873]],
        [0.301502, 0.397844, 0.502279, 0.600335],
        [0.488253, -0.238254],
    ),
    (0.9, False): (
        [[-0.5, -0.410753, -0.302731, -0.200883], [-0.098215, 0.006518, 0.106113, 0.188918]],
        [0.297742, 0.399044, 0.501411, 0.604062],
        [0.488957, -0.238957],
    ),
    (0.9, True): (
        [[-0.5, -0.402149, -0.300548, -0.200176], [-0.099642, 0.001304, 0.101221, 0.197786]],
        [0.299547, 0.399809, 0.500282, 0.600814],
        [0.497784, -0.247784],
    ),
}


def small() -> nn.Module:
    model = nn.Module()
    model.matrix = nn.Parameter(torch.arange(12.0).reshape(3, 4) / 10 - 0.5)
    model.vector = nn.Parameter(torch.tensor([0.5, -0.25]))
    return model


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    model.matrix.grad = torch.sin(torch.arange(12.0).reshape(3, 4) * number)
    model.vector.grad = torch.tensor([1.0, -3.0]) * number
    optimizer.step()


@pytest.mark.parametrize(("beta1", "relative"), THEIRS)
def test_steps_match_transformers(beta1, relative):
    model = small()
    spec = Adafactor(lr=0.01 if relative else 0.05, relative_step=relative, beta1=beta1)
    optimizer = spec.build(model)
    for number in (1, 2, 3):
        step(model, optimizer, number)
    upper, lowest, vector = THEIRS[beta1, relative]
    torch.testing.assert_close(model.matrix.data, torch.tensor([*upper, lowest]), atol=2e-6, rtol=0)
    torch.testing.assert_close(model.vector.data, torch.tensor(vector), atol=2e-6, rtol=0)


def test_steps_match_pytorch():
    model, other = small(), small()
    optimizer = Adafactor(lr=0.5, relative_step=True, weight_decay=0.0, clip=1.0).build(model)
    theirs = torch.optim.Adafactor(other.parameters(), lr=0.5, eps=(1e-15, 1e-3))
    for number in (1, 2, 3, 4):
        step(model, optimizer, number)
        step(other, theirs, number)
    # PyTorch bounds the finished product by ε, the paper the squares in it; seen if a gradient is 0, and nothing moves.
    torch.testing.assert_close(model.matrix, other.matrix)
    torch.testing.assert_close(model.vector, other.vector)


def test_a_matrix_is_remembered_as_a_row_and_a_column_and_a_stack_by_its_last_axes():
    model = small()
    model.stack = nn.Parameter(torch.randn(5, 3, 4))
    optimizer = Adafactor().build(model)
    shapes = {name: tuple(t.shape) for name, t in optimizer.state[model.matrix].items()}
    assert shapes == {"step": (), "row": (3,), "column": (4,)}
    assert optimizer.state[model.stack]["row"].shape == (5, 3)
    assert optimizer.state[model.vector]["square"].shape == (2,)
    alone = small()
    alone.matrix.data.copy_(model.stack[2])
    optimizer = Adafactor(scale_parameter=False, clip=1e9)
    together, single = optimizer.build(model), optimizer.build(alone)
    gradient = torch.randn(5, 3, 4)
    model.stack.grad, alone.matrix.grad = gradient, gradient[2]
    together.step()
    single.step()
    torch.testing.assert_close(model.stack[2], alone.matrix)


def test_a_relative_step_keeps_a_groups_share_of_the_rate():
    whole, half = small(), small()
    for model, rates in ((whole, {}), (half, {"matrix": 0.5})):
        start = model.matrix.detach().clone()
        step(model, Adafactor(lr=10.0, relative_step=True, rates=rates).build(model), 1)
        model.moved = model.matrix.detach() - start
    torch.testing.assert_close(half.moved, whole.moved / 2)
