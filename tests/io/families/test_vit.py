"""Keys of ViT's configuration: labels and sides."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.io.families import FAMILIES


@pytest.mark.parametrize(
    "said, count",
    [({}, 2), ({"num_labels": 7}, 7), ({"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0}}, 3)],
)
def test_labels_are_counted_by_their_names(said: dict[str, Any], count: int) -> None:
    spec = FAMILIES["vit"].spec(said)
    assert spec.head is not None and spec.head.to_dict()["labels"] == count
    names = FAMILIES["vit"].config(spec)["id2label"]
    assert names == {str(i): f"LABEL_{i}" for i in range(count)}


@pytest.mark.parametrize("size, written", [(224, 224), ([224, 224], 224), ([224, 160], [224, 160])])
def test_sides_are_one_number_or_two(size: Any, written: Any) -> None:
    family = FAMILIES["vit"]
    assert family.config(family.spec({"image_size": size}))["image_size"] == written
