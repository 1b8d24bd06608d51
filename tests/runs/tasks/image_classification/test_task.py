"""Pictures with classes: sizes, classes and normalization come from data and model; strange labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from qkv.data.media.augment import CutMix, Flip, MixUp, RandomResizedCrop
from qkv.data.readers.digits import Digits
from qkv.data.source import Example, Skipped, Source, Split, Table
from qkv.data.task import Item, RandomContext
from qkv.nn.layers.embedding import Embedding
from qkv.nn.layers.patches import Patches
from qkv.runs.tasks.image_classification.task import ImageClassify


class Colors(Source, kind="colors-test"):
    """Red and blue pictures of any size."""

    given: tuple[Mapping[str, Any], ...] = ()

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [dict(example) for example in self.given]


def colored(label: Any, height: int = 8, width: int = 8, channels: int = 3) -> Example:
    pixels = np.zeros((channels, height, width), np.uint8)
    pixels[0 if label == "red" else -1] = 200
    return {"image": pixels, "label": label, "where": f"a {label} picture"}


SEEN = Patches(image=(8, 8), patch=(4, 4), channels=3)
DATA = Colors(given=(colored("red"), colored("blue"), colored("red", 16, 12)))
TASK = ImageClassify().resolve(DATA, None, SEEN)


def chance(training: bool = True, seed: int = 0) -> RandomContext:
    return RandomContext(np.random.default_rng(seed), training)


def items(task: ImageClassify, examples: list[Example], training: bool = True) -> list[Item]:
    made = task.items(examples, None, chance(training))
    assert not any(isinstance(one, Skipped) for one in made)
    return made  # type: ignore[return-value]


def test_it_is_settled_by_data_and_model() -> None:
    assert TASK.classes == ("blue", "red") and TASK.n_labels == 2
    assert (TASK.image, TASK.channels, TASK.tokens) == ((8, 8), 3, 5)
    assert ImageClassify.from_dict(TASK.to_dict()) == TASK
    assert ImageClassify(classes=("red", "blue")).resolve(DATA, None, SEEN).classes == ("red", "blue")
    assert ImageClassify().resolve(Digits(), None, SEEN).classes == tuple("0123456789")


def test_numbers_are_in_their_order() -> None:
    data = Colors(given=tuple(colored(n) for n in (10, 9, 2)))
    assert ImageClassify().resolve(data, None, SEEN).classes == ("2", "9", "10")


def test_a_batch_is_normalized_pictures_and_class_numbers() -> None:
    batch = TASK.collate(items(TASK, list(DATA.table("train"))), 0).batch({})
    assert batch.inputs["ids"].shape == (3, 3, 8, 8) and batch.inputs["ids"].dtype == torch.float32
    assert batch.labels is not None and batch.labels.tolist() == [1, 0, 1]
    assert batch.counts == {"loss": 3} and (batch.tokens, batch.slots) == (15, 15)
    assert batch.texts == ({},) * 3  # pictures travel once, but for those that are judged
    assert items(TASK, [colored("red")], training=False)[0].example["label"] == "red"


def test_training_is_changed_by_chance_and_evaluation_is_not() -> None:
    task = TASK.replace({"augment": [RandomResizedCrop().to_dict(), Flip().to_dict()], "mix": [MixUp().to_dict()]})
    example = {**colored("red"), "image": np.random.default_rng(0).integers(0, 256, (3, 20, 30), np.uint8)}
    first, second = items(task, [example] * 2)
    assert (first.arrays["ids"] != second.arrays["ids"]).any()
    first, second = items(task, [example] * 2, training=False)
    np.testing.assert_array_equal(first.arrays["ids"], second.arrays["ids"])
    assert first.labels == 1


def test_mixed_labels_are_shares_and_count_once_each() -> None:
    task = TASK.replace({"mix": [CutMix().to_dict(), MixUp(alpha=1.0).to_dict()]})
    cut = task.collate(items(task, [colored("red"), colored("blue")] * 8), 0)
    assert cut.labels is not None and cut.labels.shape == (16, 2) and cut.labels.dtype == np.float32
    np.testing.assert_allclose(cut.labels.sum(1), 1, rtol=1e-5)
    assert cut.counts == {"loss": 16}


@pytest.mark.parametrize(
    ("label", "said", "reason"),
    [
        ("rde", "'rde' is not in the training data; did you mean 'red'", "of a class unseen in training"),
        (None, "the label is None, and not a class", "without a class"),
        (0.5, "the label is 0.5, and not a class", "without a class"),
        (7, "'7' is not in the training data", "of a class unseen in training"),
    ],
)
def test_strange_labels(label: Any, said: str, reason: str) -> None:
    example = {**colored("red"), "label": label, "where": "cats.csv, row 7"}
    with pytest.raises(ValueError, match=said) as error:
        TASK.items([example], None, chance())
    assert str(error.value).startswith("cats.csv, row 7: ")
    good = colored("blue")
    kept = TASK.replace({"on_error": "skip", "mix": [MixUp().to_dict()]}).items([example, good], None, chance())
    assert kept[0] == reason and isinstance(kept[1], Item)


@pytest.mark.parametrize(
    ("given", "said"),
    [((colored("red"),), "only the class 'red'"), (({"image": colored("red")["image"]},) * 2, "have no class")],
)
def test_one_class_is_nothing_to_tell(given: tuple[Example, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ImageClassify().resolve(Colors(given=given), None, SEEN)


def test_a_model_that_reads_text_sees_no_pictures() -> None:
    with pytest.raises(ValueError, match="this model reads none"):
        ImageClassify().resolve(DATA, None, Embedding())


def test_cuts_from_whole_pictures_come_first() -> None:
    with pytest.raises(ValueError, match="it is the first augmentation"):
        ImageClassify(augment=(Flip(), RandomResizedCrop()))


def test_a_model_of_two_channels_reads_no_pictures() -> None:
    with pytest.raises(ValueError, match=r"of 3 channels is none for a model of 2; give model\.channels=3"):
        items(TASK.replace({"channels": 2}), [colored("red")])


def test_gray_pictures_serve_a_model_of_colors() -> None:
    (made,) = items(TASK, [colored("red", channels=1)])
    assert made.arrays["ids"].shape == (3, 8, 8)
