from __future__ import annotations

import numpy as np
import pytest

from qkv.runs.tasks.media import MediumReader, TextWithFiles, beside, placed, stacked

READERS = (
    MediumReader("image", "<image>", 9, lambda file: np.full((1, 2, file), file), lambda shape: shape[2], (7,), (8,)),
    MediumReader("sound", "<sound>", 5, lambda file: np.full((4,), file), lambda shape: 2),
)


def test_each_placeholder_becomes_as_many_tokens_as_its_medium() -> None:
    found = placed([1, 9, 2, 5, 9, 3], READERS, {"image": [2, 1], "sound": [4]})
    assert found.ids == [1, 7, 9, 9, 8, 2, 5, 5, 7, 9, 8, 3]
    assert found.origins == [0, 1, 1, 1, 1, 2, 3, 3, 4, 4, 4, 5]
    assert [image.shape for image in found.media["image"]] == [(1, 2, 2), (1, 2, 1)] and len(found.media["sound"]) == 1
    assert placed([1, 2], READERS, {}) == ([1, 2], [0, 1], {})


@pytest.mark.parametrize(
    ("ids", "files", "said"),
    [
        ([1, 9, 9], {"image": [1]}, "2 placeholders <image> and 1 image beside it; give one image for each"),
        ([1], {"sound": [1, 1]}, "0 placeholders <sound> and 2 sounds beside it"),
        ([1, 9], {}, "1 placeholder <image> and 0 images beside it"),
        ([1], {"video": [1]}, "has 1 video beside it, and this model reads text, images and sounds"),
    ],
)
def test_files_and_placeholders_are_equally_many(ids: list[int], files: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        placed(ids, READERS, files)


def read(texts: list[TextWithFiles]) -> list[tuple[str, dict]]:
    return [(str(text), dict(text.files)) for text in texts]


def test_files_are_shared_out_in_the_order_of_the_places() -> None:
    one, two = "a <image> b <image>", "<image> <sound>"
    assert read(beside([one, two], READERS, {"image": [1, 2, 3], "sound": [4]})) == [
        (one, {"image": (1, 2)}),
        (two, {"image": (3,), "sound": (4,)}),
    ]
    assert read(beside(["a", "b"], READERS, {"image": [1]})) == [(f"<image>{t}", {"image": (1,)}) for t in "ab"]
    assert read(beside(["a", "b"], READERS, {"image": [1, 2]})) == [
        ("<image>a", {"image": (1,)}),
        ("<image>b", {"image": (2,)}),
    ]
    assert read(beside(["a"], READERS, {"image": [1, 2], "sound": [3]})) == [
        ("<image><image><sound>a", {"image": (1, 2), "sound": (3,)})
    ]
    assert read(beside([one, one], READERS, {"image": [1, 2]})) == [(one, {"image": (1, 2)})] * 2  # the same for all
    assert read(beside(["a", "b"], READERS, {})) == [("a", {}), ("b", {})]
    for texts, files, said in (
        (["a", "b"], {"image": [1, 2, 3]}, "2 texts have 2 placeholders <image> and 3 images beside them"),
        ([one], {"image": [1]}, "the text has 2 placeholders <image> and 1 image beside it"),
        ([one], {}, "2 placeholders <image> and 0 images"),
        (["a"], {"video": [1]}, "reads text, images and sounds"),
    ):
        with pytest.raises(ValueError, match=said):
            beside(texts, READERS, files)


def test_media_of_several_texts_stand_one_after_the_other() -> None:
    small, large = np.zeros((1, 2, 2)), np.ones((1, 2, 3))
    joined = stacked([{"image": [small]}, {}, {"image": [small, small], "sound": [large]}])
    assert joined["image"].shape == (3, 1, 2, 2) and joined["sound"].shape == (1, 1, 2, 3)
    assert [tuple(one.shape) for one in stacked([{"image": [small, large]}])["image"]] == [(1, 2, 2), (1, 2, 3)]
