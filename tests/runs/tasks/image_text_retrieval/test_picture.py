"""Drawings of retrieval: numbers and texts are shown, texts escaped, and the largest cosine of a row framed."""

from __future__ import annotations

from qkv.runs.tasks.image_text_retrieval.picture import cosines, similarities


def test_the_nearest_texts_stand_beside_the_picture() -> None:
    shown = str(cosines({"image": "AA==", "texts": [["a <cat>", 0.51234], ["a dog", -0.1]]}))
    assert "0.512" in shown and "-0.100" in shown and "a &lt;cat&gt;" in shown and "base64,AA==" in shown


def test_the_largest_of_each_row_is_framed() -> None:
    table = [[0.9, 0.1], [0.2, 0.3], [-0.5, -0.6]]
    shown = str(similarities({"cosines": table, "images": ["AA=="] * 3, "texts": ["x", "y"]}))
    framed = [cell.split(">")[1].split("<")[0] for cell in shown.split("<td")[1:] if "outline" in cell]
    assert framed == ["0.90", "0.30", "-0.50"] and shown.count("<img") == 3
    assert "var(--s0) 70%" in shown and "var(--s0) 0%" in shown  # the largest of all, and the least
