"""Axes: which tokens are on display, and how a picture's are named and chosen."""

from __future__ import annotations

import pytest

from qkv.core.layout import Grid
from qkv.look.view.axis import MOST_QUERIES, MOST_TOKENS, Axis, patch_labels, spread, window


def test_the_first_tokens_unless_others_are_chosen() -> None:
    assert window(10, None) == tuple(range(10))
    assert window(100, None) == tuple(range(MOST_TOKENS))
    assert window(100, (90, 200)) == tuple(range(90, 100))
    with pytest.raises(ValueError, match="tokens 10:20 hold none of the 10 tokens; choose a range within 0:10"):
        window(10, (10, 20))


def test_patches_are_named_by_row_and_column() -> None:
    assert patch_labels(Grid(1, 2, 1, 2)) == ("class", "0,0", "0,1", "token 0", "token 1")


@pytest.mark.parametrize("side", [2, 8, 14, 32])
def test_queries_of_a_picture_are_spread_over_it(side: int) -> None:
    grid = Grid(side, side, 1)
    queries = spread(grid)
    assert len(queries) <= MOST_QUERIES and queries[0] == 0 and len(set(queries)) == len(queries)
    assert max(queries) < grid.tokens
    if side < 8:
        assert queries == tuple(range(grid.tokens))


def test_a_note_says_what_is_not_drawn() -> None:
    assert Axis("text", ("a", "b"), (0, 1), 2).note == ""
    assert "the first 2 are drawn" in Axis("text", ("a", "b"), (0, 1), 9).note
    assert "4 to 5 are drawn" in Axis("text", ("a", "b"), (4, 5), 9).note
    picture = Axis("picture", ("class", "0,0"), (0, 1), 2, queries=(0,), grid=Grid(1, 1, 1))
    assert picture.note.startswith("1 of the 2 tokens of the picture") and picture.row_labels == ("class",)
