"""Tables of points: columns under their usual names, tokens and FLOPs from each other, and mistakes in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qkv.lab.laws.points import Points, read_points


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_flops_and_tokens_follow_from_each_other(tmp_path: Path) -> None:
    by_tokens = read_points(written(tmp_path / "a.csv", "N,D,loss\n100,2000,3.5\n200,1000,3.4\n"))
    assert by_tokens.flops.tolist() == [6 * 100 * 2000, 6 * 200 * 1000]
    by_flops = read_points(written(tmp_path / "b.csv", "Model Size,Training FLOP,loss\n100,1200000,3.5\n"))
    assert by_flops.tokens.tolist() == [2000] and by_flops.flops_per_parameter == pytest.approx(6)


def test_a_column_counts_before_its_other_spellings(tmp_path: Path) -> None:
    points = read_points(written(tmp_path / "a.csv", "parameters,tokens,Loss,loss,LOSS\n1,2,30,3,300\n"))
    assert points.loss.tolist() == [3]


def test_runs_without_a_loss_are_left_out(tmp_path: Path) -> None:
    points = read_points(written(tmp_path / "a.csv", "run,parameters,tokens,loss\na,1,2,3\nb,1,2,\n"))
    assert len(points) == 1 and points.loss.tolist() == [3]


def test_the_highest_losses_can_be_left_out() -> None:
    points = Points.of({"parameters": n, "tokens": 10.0, "loss": n} for n in (3.0, 1.0, 2.0))
    assert points.without_highest(1).loss.tolist() == [1, 2]
    with pytest.raises(ValueError, match="leaving out the 3 highest losses leaves none of 3 points"):
        points.without_highest(3)
    assert np.array_equal(points[points.loss < 2.5].loss, [1, 2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("parameters,loss\n1,2\n", "has no column tokens"),
        ("tokens,flops\n1,2\n", "has no column parameters and no column loss"),
        ("parameters,tokens,loss\n1,2,high\n", "line 2: loss is 'high', not a number"),
        ("parameters,tokens,loss\n1,-2,3\n", "tokens of point 1 is -2; it is a positive number"),
        ("recipe,parameters,tokens,loss\na,1,2,3\nb,1,2,3\n", r"points of 2 recipes \(a, b\)"),
    ],
)
def test_a_wrong_table_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_points(written(tmp_path / "points.csv", text))


def test_a_file_that_is_no_table_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(ValueError, match=r"points\.csv is not a CSV file in UTF-8"):
        read_points(tmp_path / "points.csv")
