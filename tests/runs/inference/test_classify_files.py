"""Classes of pictures, sounds and videos in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from short_runs import PICTURES, Train, clip, examples, picture, samples, wave


@pytest.mark.parametrize("name", ["vit", "speech", "video"])
def test_classes_of_files_match_the_evaluation(short_run: Train, tmp_path: Path, name: str) -> None:
    run = short_run(name, *(() if name == "vit" else PICTURES))
    assert run.recipe is not None
    told = [one["output"] for one in samples(run)]
    written = {"vit": picture, "speech": wave, "video": clip}[name]
    paths = [written(one, tmp_path) for one in examples(run)]
    made = run.predict(paths)
    assert [one.value.label for one in made] == told
    assert [one.value for one in made] == run.classify_files(paths)
