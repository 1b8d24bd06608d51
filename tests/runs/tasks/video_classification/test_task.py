"""Videos with classes: frames and tubelets come from data and model, and have to fit one another."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.data.media.augment import Flip
from qkv.data.media.video import tubelets
from qkv.data.readers.digits import Digits
from qkv.data.synthetic.moving_digits import DIRECTIONS, MovingDigits
from qkv.data.task import Item, RandomContext
from qkv.nn.layers.patches import Patches
from qkv.runs.tasks.video_classification.task import VideoClassify

DATA = MovingDigits(noise=0)
SEEN = Patches(image=(64, 16), patch=(4, 4), channels=2)


def items(task: VideoClassify, shape: tuple[int, ...]) -> list[Item]:
    video = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    randomness = RandomContext(np.random.default_rng(0), training=True)
    return task.items([{"video": video, "label": "up"}], None, randomness)  # type: ignore[return-value]


def test_it_is_settled_by_data_and_model() -> None:
    task = VideoClassify().resolve(DATA, None, SEEN)
    assert (task.frames, task.tubelet, task.tokens, task.image) == (8, 2, 65, (64, 16))
    assert task.classes == tuple(DIRECTIONS) and task.n_labels == 8
    (item,) = items(task, (8, 1, 16, 16))
    assert item.arrays["ids"].shape == (2, 64, 16) and item.labels == 2


def test_frames_of_another_number_and_size_are_brought_to_the_models() -> None:
    task = VideoClassify(mean=(0.0, 0.0), std=(1.0, 1.0)).resolve(DATA, None, SEEN)
    (item,) = items(task, (20, 1, 32, 48))
    assert item.arrays["ids"].shape == (2, 64, 16)
    video = np.random.default_rng(0).integers(0, 256, (16, 1, 16, 16), np.uint8)
    (item,) = task.items([{"video": video, "label": "up"}], None, RandomContext(np.random.default_rng(0), True))
    np.testing.assert_allclose(item.arrays["ids"] * 255, tubelets(video[1::2], 2), atol=1e-3)


def test_other_channels_are_skipped() -> None:
    task = VideoClassify().resolve(DATA, None, SEEN)
    assert items(task, (8, 3, 16, 16)) == ["of 3 channels where the model reads 1"]


@pytest.mark.parametrize(
    ("task", "seen", "said"),
    [
        (VideoClassify(), SEEN.replace({"channels": 3}), "make no tubelets of 3 frames"),
        (VideoClassify(tubelet=4), SEEN, "make no tubelets of 4 frames for a model of 2 channels"),
        (VideoClassify(), SEEN.replace({"image": (66, 16)}), "66 high, which the 4 tubelets in time do not divide"),
        (VideoClassify(augment=(Flip(),)), SEEN, "tear a video's frames apart"),
    ],
)
def test_what_does_not_fit(task: VideoClassify, seen: Patches, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        task.resolve(DATA, None, seen)


def test_pictures_are_no_videos() -> None:
    with pytest.raises(ValueError, match="'digits' gives none"):
        VideoClassify().resolve(Digits(), None, SEEN)
