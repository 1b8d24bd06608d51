"""Tables that name pictures or sounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from guessable_files import write
from PIL import Image

from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.recipe import Recipe


def test_a_table_of_pictures_is_no_table_of_texts(tmp_path: Path) -> None:
    for i in range(12):
        Image.new("RGB", (16, 16), (i, 0, 0)).save(tmp_path / f"{i}.png")
    table = write(tmp_path / "list.csv", "bild;klasse\n" + "".join(f"{i}.png;{'ab'[i % 2]}\n" for i in range(12)))
    found = guess(table)
    assert (
        found.recipe == "vit"
        and "data.image_column=bild" in found.settings
        and "data.label_column=klasse" in found.settings
    )
    assert Recipe.load(found.recipe, found.settings).data.table("train").labels
    gone = write(tmp_path / "gone.csv", "image,label\n" + "".join(f"x/{i}.png,{'ab'[i % 2]}\n" for i in range(12)))
    with pytest.raises(ValueError, match=r"'x/0.png', and they are not in .*data.images=FOLDER"):
        guess(gone)
    sounds = write(tmp_path / "s.csv", "path,label\n" + "".join(f"{i}.wav,{'ab'[i % 2]}\n" for i in range(12)))
    with pytest.raises(ValueError, match=r"names sounds; `qkv train speech data.kind=sounds data.path="):
        guess(sounds)
