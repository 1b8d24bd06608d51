"""Hidden patches: how many, which, and what the loss is on; noise and coarse pictures beside them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.readers.digits import Digits
from qkv.data.source import Skipped
from qkv.data.task import RandomContext
from qkv.nn.layers.patches import Patches, shown_patches
from qkv.runs.tasks.masked_images.task import MaskedPatches

SEEN = Patches(image=(8, 8), patch=(2, 2), channels=1)


def settled(**fields: float) -> MaskedPatches:
    return MaskedPatches(**fields).resolve(Digits(), None, SEEN)


def cut(task: MaskedPatches, rows: int = 6, seed: int = 0):  # type: ignore[no-untyped-def]
    examples = [Digits().table("train")[i] for i in range(rows)]
    made = task.items(examples, None, RandomContext(np.random.default_rng(seed), training=True))
    return task.collate([one for one in made if not isinstance(one, Skipped)], 0)


@given(st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9]), st.integers(1, 5))
def test_the_share_is_hidden_in_every_row_by_chance(masked: float, rows: int) -> None:
    task = settled(masked=masked)
    made = cut(task, rows)
    batch, kept = made.batch({}), int(16 * (1 - masked))
    assert batch.inputs["layout"].shape == (rows, 1 + kept)
    assert made.counts == {"loss": rows * (16 - kept)} and made.tokens == rows * (1 + kept)
    assert batch.targets == {} and batch.labels is not None
    torch.testing.assert_close(batch.labels, batch.inputs["ids"])


def test_other_patches_each_time_and_the_same_by_the_same_seed() -> None:
    task = settled(masked=0.75)
    first, again, other = (shown_patches(cut(task, seed=s).batch({}).inputs["layout"]) for s in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert len({tuple(row) for row in first.tolist()}) > 3
    many = shown_patches(cut(task, 600).batch({}).inputs["layout"])
    counts = torch.bincount(many.flatten(), minlength=16)
    assert counts.min() > 110 and counts.max() < 190  # 150 each


def test_noise_is_of_the_size_asked_for_and_the_truth_without() -> None:
    made = cut(settled(masked=0, noise=0.5), 200)
    difference = made.arrays["ids"] - made.labels
    assert abs(difference.std() - 0.5) < 0.01 and abs(difference.mean()) < 0.01
    assert made.counts == {"loss": 200 * 16} and made.placed == {}


def test_coarse_pictures_are_means_of_squares() -> None:
    made = cut(settled(masked=0, coarse=4), 3)
    seen, truth = made.arrays["ids"], made.labels
    mean = truth[:, :, :4, :4].mean((2, 3), keepdims=True)
    np.testing.assert_allclose(seen[:, :, :4, :4], np.broadcast_to(mean, (3, 1, 4, 4)), rtol=1e-4, atol=1e-6)
    assert len(np.unique(seen[0])) <= 4


def test_settled_tasks_are_kept_in_recipes() -> None:
    task = settled(masked=0.5)
    assert MaskedPatches.from_dict(task.to_dict()) == task and task.tokens == 9


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"masked": 0.0}, "nothing is hidden"),
        ({"masked": 0.99}, "hides all of 16 patches"),
        ({"masked": 0.5, "coarse": 3}, "task.coarse=3 does not divide pictures of 8 × 8"),
    ],
)
def test_what_can_not_be(fields: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settled(**fields)


def test_a_stream_of_masked_pictures() -> None:
    with stream(Digits(), None, Batching(tokens=80, workers=0), seq2seq=False, task=settled(), epochs=1) as batches:
        batch = next(batches)
    assert batch.rows == 16 and batch.inputs["layout"].shape == (16, 5)
