"""The gradients of `qkv explain backprop`."""

from __future__ import annotations

from dataclasses import replace

import torch
from displayed import check, numbers

from qkv.learn.explain.computations import backprop
from qkv.learn.explain.registry import explain
from qkv.learn.explain.toy import language_model


def test_the_worked_example():
    explanation = backprop.example()
    q, k, v = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (backprop.Q, backprop.K, backprop.V))
    out = (q @ k.T).softmax(-1) @ v
    out.backward(torch.tensor(backprop.GRADIENT, dtype=torch.float64))
    for name, x in (("dQ", q), ("dK", k), ("dV", v)):
        assert x.grad is not None
        check(numbers(explanation.table(name)), x.grad.numpy())
    check(numbers(explanation.table("dS")).sum(-1), [0, 0], rounding=1.1e-4)


def test_a_models_gradients_match_its_loss():
    subject = language_model()
    explanation = explain("backprop", subject)
    model = subject.model.double()
    layer = model.decoder.blocks[0].attention
    kept = []
    hook = layer.v.register_forward_hook(lambda _, inputs, out: (out.retain_grad(), kept.append(out))[-1])
    logits = model(*subject.inputs)
    torch.nn.functional.cross_entropy(logits[0, :-1], subject.inputs[0][0, 1:]).backward()
    hook.remove()
    check(numbers(explanation.table("dV")), kept[0].grad[0, :, :2].numpy())
    values = explanation.table("by hand").values
    assert all(float(str(difference)) < 1e-6 for _, difference in values)


def test_what_is_0_by_the_equations_is_displayed_as_0() -> None:
    """Equal gradients of all weights move none of them, though weights in fp32 don't add up to 1 exactly."""
    subject = language_model()
    for head in range(2):
        table = explain("backprop", replace(subject, head=head)).table("dS")
        assert not [cell for row in table.rows for cell in row if "e−" in str(cell)]
    weights = torch.tensor([[0.1] * 10]) * (1 + 3e-7)
    assert abs(float(backprop._exact(weights).sum()) - 1) < 1e-15


def test_a_gradient_whose_terms_cancel_is_displayed_as_0() -> None:
    """q2's first component: −1.1797 + 1.1797, which is 4e−16 in fp64."""
    explanation = backprop.example()
    cells = [str(cell) for step in explanation.steps for table in step.tables for row in table.values for cell in row]
    assert not [cell for cell in cells if "e−" in cell]
    assert float(numbers(explanation.table("dQ"))[1, 0]) == 0
