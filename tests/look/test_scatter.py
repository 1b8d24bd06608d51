"""Scatter plots: distances are true, words are escaped; principal components come from the covariance."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from qkv.look.scatter import Point, principal, scatter


def circles(picture: str) -> list[tuple[float, float, str]]:
    """The points' places and classes, without the legend's."""
    found = [e for e in ElementTree.fromstring(picture) if e.tag == "circle" and len(e)]
    return [(float(e.attrib["cx"]), float(e.attrib["cy"]), e.attrib["class"]) for e in found]


def test_points_stand_in_the_frame_with_their_distances_in_proportion() -> None:
    points = [Point(0, 0, 0, "a"), Point(10, 0, 1, "b"), Point(0, 3, 1, "<c>")]
    picture = scatter("bank", points, ["river", "money"], note="separation 2")
    (x, y, first), (x1, y1, second), (x2, y2, _) = circles(picture)
    assert (first, second) == ("dot s0", "dot s1")
    assert y1 == pytest.approx(y, abs=0.02) and x2 == pytest.approx(x, abs=0.02)
    assert (y - y2) / (x1 - x) == pytest.approx(0.3, abs=0.01)  # up is larger
    assert ElementTree.fromstring(picture).attrib["viewBox"] == "0 0 260 220"
    assert all(0 <= value <= 260 for value in (x, x1, x2)) and all(50 <= value <= 220 for value in (y, y1, y2))
    assert "&lt;c&gt;" in picture and "river" in picture and "separation 2" in picture


def test_points_in_one_place_stand_in_the_middle() -> None:
    places = circles(scatter("bank", [Point(1e3, 5, i % 2, "") for i in range(4)], ["a", "b"]))
    assert {(x, y) for x, y, _ in places} == {(130.0, 135.0)}, "in the middle of what the legend leaves"
    with pytest.raises(ValueError, match="no points"):
        scatter("bank", [], [])


def test_principal_components_match_the_covariance() -> None:
    random = torch.Generator().manual_seed(0)
    data = torch.randn(50, 6, generator=random) * torch.tensor([5.0, 3, 1, 0.5, 0.1, 0.1]) + 7
    found = principal(data)
    values, vectors = torch.linalg.eigh(torch.cov(data.T))
    torch.testing.assert_close(found.var(0), values.flip(0)[:2], rtol=1e-4, atol=0)
    expected = (data - data.mean(0)) @ vectors.flip(1)[:, :2]
    torch.testing.assert_close(found.abs(), expected.abs(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(principal(data.flip(0)).flip(0), found, rtol=1e-4, atol=1e-4)


def test_missing_directions_are_zeros() -> None:
    found = principal(torch.tensor([[1.0], [3.0]]))
    torch.testing.assert_close(found, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    assert principal(torch.ones(3, 4)).abs().max() < 1e-6
