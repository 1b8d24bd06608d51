"""What a directory says of its model without loading it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qkv.io.directories.spec import origin_of, spec_of, weights_of
from qkv.runs.inference.run import load


def test_the_spec_the_weights_and_the_origin_are_those_of_the_directory(trained_lm: Path) -> None:
    assert spec_of(str(trained_lm)) == load(trained_lm, device="cpu").model.spec
    assert weights_of(str(trained_lm)) is None and origin_of(str(trained_lm)) is None
    assert weights_of("small-english") == "int8"


def test_a_directory_without_a_configuration_is_refused(trained_lm: Path, tmp_path: Path) -> None:
    shutil.copytree(trained_lm, tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    with pytest.raises(ValueError, match=r"there is no model in .*: it has no config\.json"):
        spec_of(str(tmp_path / "run"))
    assert weights_of(str(tmp_path / "run")) is None
