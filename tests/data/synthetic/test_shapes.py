from __future__ import annotations

import numpy as np
import pytest

from qkv.data.source import SPLITS
from qkv.data.synthetic.shapes import (
    COLORS,
    INSIDE,
    NUMBERS,
    SIZES,
    DrawnShape,
    Scenes,
    Shapes,
    arranged,
    drawn,
    question,
    related,
    sentence,
)


def shape(kind: str, color: str, x: float, y: float, size: str = "small") -> DrawnShape:
    return DrawnShape(kind, color, size, x, y, 5.0)


def test_a_picture_its_mask_and_its_boxes_agree() -> None:
    source = Shapes(size=(40, 56), most=3, noise=0.0)
    for i in range(30):
        made = source.table("train")[i]
        assert made["image"].shape == (3, 40, 56) and made["image"].dtype == np.uint8
        assert made["mask"].shape == (40, 56) and 1 <= len(made["names"]) <= 3
        ground = made["image"][:, made["mask"] == 0].astype(int)
        left, top, right, bottom = made["boxes"].T.astype(int)
        assert (left < right).all() and (top < bottom).all() and (right <= 56).all() and (bottom <= 40).all()
        for name, a, b, c, d in zip(made["names"], left, top, right, bottom, strict=True):
            part = made["mask"][b:d, a:c]
            number = source.classes.index(name)
            assert all((edge == number).any() for edge in (part[0], part[-1], part[:, 0], part[:, -1]))
        assert np.median(abs(ground - np.median(ground))) <= 1


def test_shapes_do_not_touch() -> None:
    for seed in range(100):
        random = np.random.default_rng(seed)
        masks = drawn(random, (40, 40), arranged(random, (40, 40), 4), 0.0).masks
        assert 1 <= len(masks) <= 4 and (masks.sum(0) <= 1).all()


@pytest.mark.parametrize("kind", INSIDE)
def test_every_kind_fills_its_square_from_side_to_side(kind: str) -> None:
    cover = DrawnShape(kind, "red", "large", 20, 20, 12).cover((40, 40))
    rows, columns = np.flatnonzero((cover > 0.5).any(1)), np.flatnonzero((cover > 0.5).any(0))
    assert 8 <= rows[0] <= 12 and 27 <= rows[-1] <= 32 and 8 <= columns[0] <= 12 and 27 <= columns[-1] <= 32
    np.testing.assert_allclose(cover, cover[:, ::-1], atol=0.2)
    assert ((cover >= 0) & (cover <= 1)).all() and (cover == 1).sum() > 50


def test_made_pictures_are_the_same_whenever_they_are_asked_for_and_others_in_another_epoch() -> None:
    source = Shapes(size=(32, 32))
    first, again = (source.table("train", seed=3, epoch=1)[5] for _ in range(2))
    assert (first["image"] == again["image"]).all()
    for split, seed, epoch in (("train", 3, 2), ("train", 4, 1), ("validation", 3, 1), ("test", 3, 1)):
        assert (first["image"] != source.table(split, seed=seed, epoch=epoch)[5]["image"]).any()
    held = [source.table(split, seed=seed)[0]["image"] for split in SPLITS[1:] for seed in (0, 1)]
    assert (held[0] == held[1]).all() and (held[2] == held[3]).all() and (held[0] != held[2]).any()


def test_sentences_say_how_shapes_stand() -> None:
    circle, square = shape("circle", "red", 10, 10), shape("square", "blue", 12, 30, "large")
    assert sentence((circle,)) == "a small red circle"
    for both in ((circle, square), (square, circle)):
        assert sentence(both) == "a small red circle above a large blue square"
    assert sentence((square, shape("cross", "green", 40, 33))) == "a large blue square left of a small green cross"
    assert related(circle, shape("cross", "green", 30, 29))[2] == ""


def test_answers_are_true() -> None:
    source, seen = Scenes(size=(48, 48), questions=1.0), set()
    for i in range(300):
        random = np.random.default_rng(i)
        shapes = source.shapes(random)
        while not sentence(shapes):
            shapes = source.shapes(random)
        asked, answer = question(random, shapes)
        words = asked.split()
        seen.add(" ".join(words[:2]))
        if asked.startswith("how many"):
            assert NUMBERS.index(answer) == len(shapes)
        elif asked.startswith("is there"):
            there = any((s.color, s.kind) == (words[3], words[4]) for s in shapes)
            assert answer == ("yes" if there else "no")
        elif asked.startswith(("what color", "how large")):
            (one,) = (s for s in shapes if s.kind == words[4])
            assert answer == (one.color if words[1] == "color" else one.size)
        else:
            assert any(answer in (f"a {s}", f"a {s.kind}") for s in shapes)
    assert seen == {"how many", "is there", "what color", "how large", "what is"}


def test_every_word_is_said_in_every_split() -> None:
    source = Scenes(size=(32, 32), questions=0.0)
    for split in SPLITS:
        words = {word for i in range(150) for word in source.table(split)[i]["answer"].split()}
        assert words == {"a", "above", "left", "of", *COLORS, *SIZES, *INSIDE}


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"least": 3, "most": 2}, "less than least"), ({"size": [8, 40]}, "at least 16 × 16 pixels")],
)
def test_impossible_pictures_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Shapes.from_dict({"kind": "shapes", **settings})
