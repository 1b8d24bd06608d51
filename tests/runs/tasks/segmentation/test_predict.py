"""Masks of new pictures are the masks of the evaluation."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from short_runs import PICTURES, Train, files, values

from qkv.data.media import images
from qkv.data.readers.segmentation_masks import read_mask
from qkv.runs.evaluate.evaluate import evaluate_run


@pytest.mark.parametrize("size", [(48, 48), (70, 101), (30, 60)])  # the model's, of several tiles, smaller than a tile
def test_masks_match_the_evaluation(short_run: Train, tmp_path: Path, size: tuple[int, int]) -> None:
    run = short_run("segment", *PICTURES, "training.max_steps=12")
    assert run.recipe is not None
    changed = replace(run, recipe=run.recipe.change([f"data.size=[{size[0]},{size[1]}]"]))
    # Made pictures have no "where" by which an evaluation knows the tiles of one: there is one picture.
    told = evaluate_run(changed, "test", max_examples=1).samples[0]["picture"]
    path = files(changed, tmp_path)[0]
    (one,) = run.predict([path])
    assert one.value.shape == size and (one.value == values(base64.b64decode(told["made"]))).all()
    assert len(np.unique(one.value)) > 1
    assert sum(one.fields["shares"].values()) == pytest.approx(1) and one.fields["size"] == list(size)
    written = one.write(tmp_path / "out")
    assert [path.name for path in written] == ["0.mask.png", "0.classes.png"]
    assert (read_mask(written[0]) == one.value).all()
    assert images.read(written[1]).shape == (3, *size)
