"""Series from Hugging Face datasets: folders of `save_to_disk` and of files, columns, gaps, and training by a recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qkv.data.readers.dataset_series import DatasetSeries
from qkv.data.readers.time_series import TimeSeries
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

datasets = pytest.importorskip("datasets")
ROWS = 300


def columns() -> dict[str, list[object]]:
    t = np.arange(ROWS)
    dates = (np.datetime64("2016-07-01T00") + t).astype(str).tolist()
    return {"date": dates, "load": np.sin(t / 5).tolist(), "heat": (20 + np.cos(t / 7)).tolist()}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    datasets.Dataset.from_dict(columns()).save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


def test_it_reads_what_a_file_of_the_same_rows_gives(saved: Path, tmp_path: Path) -> None:
    table = columns()
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    (tmp_path / "same.csv").write_text("\n".join(lines))
    ours, file = DatasetSeries(path=str(saved)), TimeSeries(path=str(tmp_path / "same.csv"))
    assert ours.values()[1] == file.values()[1] == ("load", "heat")
    np.testing.assert_allclose(ours.values()[0], file.values()[0], rtol=1e-6)
    for split in ("train", "validation", "test"):
        a, b = ours.replace(history=8, horizon=4), file.replace(history=8, horizon=4)
        assert len(a.table(split)) == len(b.table(split))
        np.testing.assert_allclose(a.table(split)[0]["future"], b.table(split)[0]["future"], rtol=1e-5)


def test_columns_and_splits_by_name(tmp_path: Path) -> None:
    parts = {"old": datasets.Dataset.from_dict(columns()), "new": datasets.Dataset.from_dict(columns())}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "two")
    source = DatasetSeries(path=str(tmp_path / "two"), split="new", columns=("heat",))
    assert source.values()[0].shape == (ROWS, 1) and source.values()[1] == ("heat",)
    with pytest.raises(ValueError, match="has no split 'train'"):
        DatasetSeries(path=str(tmp_path / "two")).values()


def test_gaps_are_an_error_or_filled(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"x": [1.0, None, 3.0]}).save_to_disk(tmp_path / "gaps")
    with pytest.raises(ValueError, match="row 2"):
        DatasetSeries(path=str(tmp_path / "gaps")).values()
    filled = DatasetSeries(path=str(tmp_path / "gaps"), gaps="fill").values()[0]
    assert filled[:, 0].tolist() == [1.0, 1.0, 3.0]


def test_a_missing_path_and_library_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"give data\.path"):
        DatasetSeries().values()
    with pytest.raises(ValueError, match="the library datasets can't open"):
        DatasetSeries(path=str(tmp_path / "nothing")).values()


def test_a_recipe_trains_on_it(saved: Path, tmp_path: Path) -> None:
    recipe = Recipe.load(
        "forecast",
        [
            f"data={{kind: dataset-series, path: {saved}, history: 16, horizon: 4}}",
            *("model.image=[1,16]", "model.patch=[1,4]", "model.d_model=16", "model.n_heads=2", "model.n_layers=1"),
            *("training.max_steps=2", "training.eval_every=2", "evaluation.examples=4", "evaluation.test_examples=4"),
        ],
    )
    assert train(recipe, tmp_path / "run").evaluation is not None
