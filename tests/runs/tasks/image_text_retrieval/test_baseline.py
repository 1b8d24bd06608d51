"""The baseline of retrieval: a picture's color tells its word, and chance is one of the distinct texts."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.runs.tasks.image_text_retrieval.baseline import Pair, ridge_retrieval

COLORS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "white": (1, 1, 1)}


def pairs(count: int, seed: int) -> list[Pair]:
    random, found = np.random.default_rng(seed), list[Pair]()
    for i in range(count):
        name, color = list(COLORS.items())[i % 4]
        light = random.integers(120, 250, (1, 20, 24))
        found.append(((np.array(color)[:, None, None] * light).astype(np.uint8), f"a {name} thing"))
    return found


def test_words_of_colors_are_predicted_and_chance_is_counted() -> None:
    ridge, chance = ridge_retrieval(pairs(60, 0), pairs(4, 1))
    assert ridge.metrics["text_recall@1"] == ridge.metrics["image_recall@1"] == 1.0
    assert chance.metrics["text_recall@1"] == chance.metrics["image_recall@1"] == 0.25
    _, chance = ridge_retrieval(pairs(60, 0), pairs(5, 1))  # "a red thing" twice: 1/4 · (2 · 2/5 + 3 · 1/5)
    assert chance.metrics["image_recall@1"] == pytest.approx((2 / 5 + 3 * 1 / 5) / 4)
