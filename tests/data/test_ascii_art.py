"""Pictures, masks and series as characters, and what tasks show of a batch by them."""

from __future__ import annotations

import pytest
import torch

from qkv.data import ascii_art
from qkv.data.synthetic.bird_calls import CALLS
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import TaskRow, preview


def test_a_picture_in_shades() -> None:
    pixels = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 4.0]])[None]
    assert ascii_art.picture(pixels) == ["  ░░▒▒", "▓▓████"]
    assert ascii_art.picture(pixels, torch.tensor([[False, True, False], [True, False, False]])) == ["  ··▒▒", "··████"]
    assert ascii_art.picture(torch.zeros(3, 2, 2)) == ["    ", "    "]


@pytest.mark.parametrize(
    ("shape", "size"), [((64, 64), (16, 32)), ((16, 640), (1, 96)), ((1, 1), (1, 2)), ((5, 1), (5, 2))]
)
def test_what_is_large_becomes_smaller(shape: tuple[int, int], size: tuple[int, int]) -> None:
    lines = ascii_art.picture(torch.rand(1, *shape))
    assert (len(lines), len(lines[0])) == size and {*map(len, lines)} == {size[1]}


def test_a_mask_and_its_shares() -> None:
    classes = torch.tensor([[0, 0, 1, 12], [0, 0, -100, 1]])
    assert ascii_art.mask(classes) == ["····11cc", "····  11"]
    names = [str(n) for n in range(13)]
    assert ascii_art.shares(classes, names) == "· 0 57%, 1 1 29%, c 12 14%"


def test_a_series() -> None:
    assert ascii_art.series(torch.arange(8.0)) == "▁▂▃▄▅▆▇█"
    assert ascii_art.series(torch.ones(3)) == "▁▁▁" and len(ascii_art.series(torch.rand(1000))) == 96


def rows(recipe: str, *settings: str) -> list[list[tuple[str, str]]]:
    found = preview(Recipe.load(recipe, settings)).rows
    assert all(isinstance(row, TaskRow) for row in found)
    return [row.lines() for row in found]


def test_a_masked_autoencoder_shows_what_is_left() -> None:
    for lines in rows("mae"):
        at = [name for name, _ in lines].index("label")
        assert lines[0] == ("ids", "4 of 16 patches; the others are dots")
        seen, whole = ("".join(text for _, text in part) for part in (lines[1:at], lines[at + 1 :]))
        assert len(seen) == len(whole) == 8 * 16 and seen.count("·") == 12 * 2 * 4


@pytest.mark.parametrize("recipe", ["vit", "video", "speech"])
def test_classes_have_names(recipe: str) -> None:
    shown = {dict(lines)["label"] for lines in rows(recipe)}
    names = {"vit": {*"0123456789"}, "speech": {*CALLS}}.get(recipe)
    assert shown <= names if names else not any(name.isdigit() for name in shown)


def test_mixed_pictures_show_both_classes() -> None:
    label = dict(rows("vit", "task.mix=[mixup]")[0])["label"]
    assert label.count("%") in (1, 2) and "numbers" not in label


def test_high_pitches_stand_above_low_ones() -> None:
    """A rising sound rises."""
    quiet = ["data.noise=0", "task.mask=0"]
    shown = (lines for k in range(9) for lines in rows("speech", f"seed={k}", *quiet))
    rising = next(lines for lines in shown if dict(lines)["label"] == "rising")
    bright = [line.find("█") for name, line in rising if not name and "█" in line]
    assert bright[0] > bright[-1]


def test_masks_and_series_are_drawn() -> None:
    lines = rows("segment")[0]
    assert dict(lines)["label"].startswith("· background ")
    assert any(set(text) <= set("·1234") and len(text) == 32 for _, text in lines)
    assert any(set(text) <= set(ascii_art.BARS) and len(text) == 96 for _, text in rows("forecast")[0])


def test_what_the_losses_of_objects_count() -> None:
    found = preview(Recipe.load("detect"))
    assert str(found).endswith(f"{found.counts['box']} giou counted") and "32 class, " in str(found)
