"""Models by path and by name, and the model that comes with the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import qkv
from qkv.io import families
from qkv.io.directories.locate import SHIPPED, SMALL_ENGLISH, locate, name_of
from qkv.runs.inference.run import Run
from qkv.runs.recipes.model_choice import ModelChoice
from qkv.runs.recipes.packaged import packaged

ROOT = Path(__file__).parents[3]


def test_the_model_of_the_package_has_a_name_that_no_recipe_and_no_preset_has():
    assert SMALL_ENGLISH not in packaged() and SMALL_ENGLISH not in families.presets()
    assert locate(SMALL_ENGLISH) == SHIPPED / SMALL_ENGLISH
    assert name_of(SHIPPED / SMALL_ENGLISH) == SMALL_ENGLISH and name_of(Path("runs/lm")) == str(Path("runs/lm"))


def test_a_folder_of_that_name_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path(SMALL_ENGLISH).mkdir()
    assert locate(SMALL_ENGLISH) == Path(SMALL_ENGLISH)
    with pytest.raises(ValueError, match="small-english is not a run directory"):
        qkv.load(SMALL_ENGLISH)


def test_a_recipe_can_start_from_it():
    choice = ModelChoice.from_dict({"preset": SMALL_ENGLISH})
    assert choice.directory == SMALL_ENGLISH and choice.stored == "int8"
    assert choice.spec().vocab_size == qkv.load(SMALL_ENGLISH).model.vocab_size


def test_a_text_where_a_run_is_expected_is_named_in_short():
    with pytest.raises(ValueError, match="there is no run directory 'a long text") as error:
        locate("a long text " * 500)
    assert len(str(error.value)) < 200


def test_a_saved_copy_is_a_separate_run(tmp_path: Path):
    run: Run = qkv.load(SMALL_ENGLISH, "cpu")
    copy = qkv.load(run.save(tmp_path / "copy", "qkv"), "cpu")
    assert copy.name == str(tmp_path / "copy")
    assert copy.generate("Once", do_sample=False, max_new_tokens=8) == run.generate(
        "Once", do_sample=False, max_new_tokens=8
    )


def test_the_wheel_takes_every_file_of_it():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "package-data"
    ]
    taken = {path for pattern in patterns["qkv"] for path in (ROOT / "src" / "qkv").glob(pattern)}
    files = set((SHIPPED / SMALL_ENGLISH).iterdir())
    assert len(files) == 6 and files <= taken
