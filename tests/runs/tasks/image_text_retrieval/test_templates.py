"""Labels become texts by templates."""

from __future__ import annotations

import pytest

from qkv.runs.tasks.image_text_retrieval.task import Retrieve


def test_labels_become_texts_by_templates() -> None:
    task = Retrieve(templates=("a photo of a {}", "a {}"))
    assert task.text_of({"label": "cat"}) == "a photo of a cat"
    assert list(task.texts({"label": "cat"})) == ["a photo of a cat", "a cat"]
    with pytest.raises(ValueError, match=r"has a label and no text; set task.templates"):
        Retrieve().text_of({"label": "cat", "where": "line 3"})
    with pytest.raises(ValueError, match="has no text beside its picture"):
        Retrieve().text_of({"image": 1})
    with pytest.raises(ValueError, match=r"task.templates needs \{\} once"):
        Retrieve(templates=("a cat",))
