"""Objectives that compare all pairs of a step: accumulated batches give what one large batch gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.core.ranks import ALONE, BatchSplit, splitting
from qkv.data.task import Task
from qkv.io.families.clip import clip
from qkv.nn.models.build import build
from qkv.training.objective import Objective
from qkv.training.settings import Training
from qkv.training.step import Stepper

assert Task  # registers the objectives of tasks
SIZES = {
    "vocab_size": 20, "width": 8, "image": (8, 8), "patch": (4, 4), "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32,
    "text_d_model": 12, "text_layers": 1, "text_heads": 2, "text_d_ff": 16, "max_positions": 10, "bias": -2.0,
}  # fmt: skip


def batch_of(pixels: torch.Tensor, ids: torch.Tensor) -> Batch:
    inputs = {"ids": ids, "pixels": pixels, "layout": Layout.full(ids.shape[1])}
    return Batch(inputs, counts={"loss": len(ids)}, tokens=ids.numel())


def step(objective: Objective, sizes: list[int], dropout: float = 0.0, **training: Any) -> tuple[float, dict[str, Any]]:
    """The loss of a step over batches of these sizes, and its gradients."""
    torch.manual_seed(0)
    pixels = torch.randn(sum(sizes), 3, 8, 8, dtype=torch.float64)
    ids = torch.randint(20, (sum(sizes), 7))
    model = build(clip(**SIZES, dropout=dropout), dtype=torch.float64).train()
    settings = Training(precision="fp32", compile=False, clip_norm=None, **training)
    stepper = Stepper(model, objective, settings, ALONE)
    gradients: dict[str, Any] = {}
    stepper.optimizer.step = lambda: gradients.update({n: p.grad.clone() for n, p in model.named_parameters()})
    parts = zip(pixels.split(sizes), ids.split(sizes), strict=True)
    torch.manual_seed(1)
    taken = stepper.take([batch_of(*part) for part in parts], lr=0.1)
    return taken.loss.item(), gradients


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_accumulated_batches_of_unequal_sizes_equal_one_large_batch(kind: str) -> None:
    """GradCache (Gao et al. 2021) is exact: loss and all gradients, of the temperature and the bias too."""
    objective = Objective.from_dict({"kind": kind})
    whole, wanted = step(objective, [9])
    parts, gradients = step(objective, [4, 2, 3])
    assert parts == pytest.approx(whole, rel=1e-12)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-9, atol=1e-13, msg=name)
    assert wanted["logit_scale"].abs() > 1e-3
    assert kind == "clip" or wanted["logit_bias"].abs() > 1e-3


def test_both_passes_drop_the_same_and_leave_the_generator_after_the_seeds_of_batches() -> None:
    objective = Objective.from_dict({"kind": "clip"})
    _, gradients = step(objective, [4, 5], dropout=0.3)
    after = torch.rand(1)
    torch.manual_seed(0)
    model = build(clip(**SIZES, dropout=0.3), dtype=torch.float64).train()
    torch.manual_seed(0)
    pixels, ids = torch.randn(9, 3, 8, 8, dtype=torch.float64), torch.randint(20, (9, 7))
    torch.manual_seed(1)
    seeds, unused, outputs = torch.randint(1 << 62, (2,)).tolist(), torch.rand(1), []
    for part, seed in zip((slice(0, 4), slice(4, 9)), seeds, strict=True):
        with splitting(BatchSplit(seed=seed)):
            outputs.append(model(**batch_of(pixels[part], ids[part]).inputs))
    u, v = (torch.cat([getattr(out, side) for out in outputs]) for side in ("image", "text"))
    scores = outputs[0].scale * u @ v.mT
    labels = torch.arange(9)
    loss = (
        torch.nn.functional.cross_entropy(scores, labels) + torch.nn.functional.cross_entropy(scores.mT, labels)
    ) / 2
    loss.backward()
    for name, parameter in model.named_parameters():
        wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(gradients[name], wanted, rtol=1e-9, atol=1e-13, msg=name)
    assert torch.equal(after, unused)
