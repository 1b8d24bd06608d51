"""The page of a pruned run: its curves and its matrix of heads."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.lab.prune import PruningResult
from qkv.lab.prune.page import write_page
from qkv.nn.pruning.redundancy import Redundancy


def test_the_elbow_is_marked_on_each_curve(tmp_path: Path):
    curve = [(0.0, {"loss": 1.0}), (0.5, {"loss": 1.1}), (0.9, {"loss": 3.0})]
    measured = ({"before": {"loss": 1.0}}, 10, {"before": 1.0, "after": 1.0})
    result = PruningResult("run", tmp_path, "gradient", {}, {}, {}, {}, curve, (2, 1), *measured)
    assert result.elbows == {"loss": 0.5}
    assert "elbow: 50 %" in write_page(result, {}, tmp_path).read_text()


@pytest.mark.parametrize(("heads", "drawn"), [(4, "0.1 → 0.0"), (60, "heat small"), (240, "59 → 59")], ids=str)
def test_the_matrix_of_many_heads_has_less_detail(heads: int, drawn: str, tmp_path: Path):
    names = [f"{i // 4}.{i % 4}" for i in range(heads)]
    same = [[float(i == j) for j in range(heads)] for i in range(heads)]
    found = Redundancy(names, same, [(i + 1) / heads for i in range(heads)], 50)
    measured = ({"before": {"loss": 1.0}}, 10, {"before": 1.0, "after": 1.0})
    empty = ({}, {}, {}, {}, [], (2, 1))
    result = PruningResult("run", tmp_path, "gradient", *empty, *measured, redundancy={"decoder": found})
    page = write_page(result, {}, tmp_path).read_text()
    assert drawn in page and len(page) < 600_000
    assert f"similarity of the {heads} heads of the decoder" in page
