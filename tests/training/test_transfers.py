"""Every place where a training step waits for its device, found on a device from which nothing can be read."""

from __future__ import annotations

import pytest
import torch
from fast_subset import fast
from same_steps import FAMILIES, _prepared
from transfers import transfers

from qkv.core.ranks import ALONE
from qkv.data.loader.stream import stream
from qkv.nn.models.build import build
from qkv.runs.train.prepare import use_of
from qkv.training.step import Stepper

LABELS = "losses.py:_linear_cross_entropy: nonzero"  # which tokens have a label
MOVES = "clipping.py:move: __bool__"  # whether to update, if no fused kernel reads that on the device


def waits(family: str, optimizer: str) -> list[str]:
    settings = (
        f"training.optimizer={{kind: {optimizer}, lr: 0.01}}",
        "training.clip_norm=1.0",
        "training.accumulate=2",
    )
    recipe, tokenizer, spec = _prepared(family, settings)
    seq2seq = use_of(spec, next(recipe.data.examples("train"))) == "translate"
    batching = recipe.batching.replace(pool=64, workers=0)
    with transfers() as found:
        model = build(spec, seed=1).train().to("meta")
        stepper = Stepper(model, recipe.objective, recipe.training, ALONE)
        with stream(recipe.data, tokenizer, batching, seq2seq=seq2seq, task=recipe.task, seed=3) as batches:
            some = [next(batches), next(batches)]
        found.places.clear()
        stepper.take(some, 0.01)
    return found.places


@pytest.mark.parametrize("family", fast(FAMILIES, "moe", "encoder", "contrastive"))
def test_a_step_waits_for_the_device_only_to_find_the_labels_of_tokens(family: str) -> None:
    of_tokens = family not in ("encoder", "vit", "contrastive")
    assert waits(family, "adamw") == [LABELS, LABELS] * of_tokens


@pytest.mark.parametrize("optimizer", ["muon", "lion", "adafactor", "adagrad"])
def test_optimizers_without_a_fused_kernel_wait_once_a_step(optimizer: str) -> None:
    assert waits("encoder", optimizer) == [MOVES]


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: bool(x[0]),
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.zeros(3).copy_(x),
        lambda x: torch.equal(x, x),
    ],
)
def test_every_kind_of_read_is_noted(read: object) -> None:
    with transfers() as found:
        read(torch.zeros(3, device="meta"))  # type: ignore[operator]
    assert len(found.places) == 1
