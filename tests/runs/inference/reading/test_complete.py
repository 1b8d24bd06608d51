"""A run that is not finished is refused, with what to do."""

import shutil
from pathlib import Path

import pytest

from qkv.runs.inference.reading.complete import check_complete
from qkv.runs.inference.run import load


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def test_an_unfinished_run_says_how_to_continue(copied: Path) -> None:
    (copied / "evaluation.json").unlink()
    (copied / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"not finished .*--resume"):
        load(copied)


def test_what_is_no_run_says_what_to_name(tmp_path: Path, trained: Path) -> None:
    check_complete(trained)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file, and no GGUF file; a run is a directory"):
        check_complete(tmp_path / "file")
    with pytest.raises(ValueError, match="there is no run directory"):
        check_complete(tmp_path / "gone")
    shutil.copytree(trained, tmp_path / "runs" / "one")
    with pytest.raises(ValueError, match=r"name one inside it, such as .*one"):
        check_complete(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no config\.json; name one that `qkv train` wrote"):
        check_complete(tmp_path / "empty")
