"""A prediction's output files, and a model without a tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.runs.tasks.prediction import Prediction


def test_files_are_named_after_the_input(tmp_path: Path) -> None:
    made = Prediction("a/b.png", 1, "1", {}, "b", lambda: {".txt": b"x", ".mask.png": b"y"})
    assert made.write(tmp_path / "new" / "out") == [tmp_path / "new/out/b.txt", tmp_path / "new/out/b.mask.png"]
    assert (tmp_path / "new/out/b.mask.png").read_bytes() == b"y"
    with pytest.raises(ValueError, match="these predictions have no files to write; give --out a table"):
        Prediction("a", 1, "1", {}).write(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_number_is_text_and_json() -> None:
    made = Prediction.of_number("a\tb", 0.123456)
    assert (made.input, made.value, made.text, made.fields) == ("a\tb", 0.123456, "0.1235", {"score": 0.123456})


def segmented(path: Path, name: str) -> Prediction:
    return Prediction(str(path), 1, "1", {}, name, lambda: {".mask.png": b"m", ".classes.png": b"c"})


def test_predictions_never_come_among_other_files(tmp_path: Path) -> None:
    pictures, out = tmp_path / "pictures", tmp_path / "out"
    (pictures / "more").mkdir(parents=True)
    for name in ("0.png", "1.png"):
        (pictures / name).write_bytes(b"picture")
    (run := tmp_path / "run").mkdir()
    (run / "recipe.yaml").write_text("task: {kind: segment}\n")
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text("{}")
    made = segmented(pictures / "0.png", "0")
    for folder, said in (
        (pictures, "is the directory of the input, which stays as it is; choose an empty directory"),
        (run, "is a run, and no other files are written into it"),
        (model, "is a model's directory, and no other files are written into it"),
        (tmp_path, "model is not one of the files of predictions, which are not mixed with others"),
    ):
        before = sorted(folder.rglob("*"))
        with pytest.raises(ValueError, match=said):
            made.write(folder)
        assert sorted(folder.rglob("*")) == before
    made.write(out)
    (out / ".hidden").touch()
    segmented(pictures / "1.png", "1").write(out)
    made.write(out, overwrite=True)
    with pytest.raises(ValueError, match="already exists; replace it with --overwrite"):
        made.write(out, overwrite=False)
    with pytest.raises(ValueError, match="is the directory of the input"):
        segmented(out / "0.mask.png", "other").write(out)  # though predictions were written there before
    assert {path.name for path in out.iterdir()} == {
        "0.mask.png", "0.classes.png", "1.mask.png", "1.classes.png", ".hidden"
    }  # fmt: skip


def test_a_directory_holds_predictions_of_several_tasks(tmp_path: Path) -> None:
    (tmp_path / "tune.continued.mid").write_bytes(b"m")
    (tmp_path / "0.boxes.svg").write_bytes(b"b")
    of_another_package = Prediction("a/0.png", 1, "1", {}, "0", lambda: {".depth.npy": b"d"})
    of_another_package.write(tmp_path / "own")
    (tmp_path / "own" / "0.png").touch()
    segmented(Path("a/0.png"), "0").write(tmp_path / "own")  # this process has looked already
    with pytest.raises(ValueError, match="own is not one of the files of predictions"):
        segmented(Path("a/0.png"), "0").write(tmp_path)
    (tmp_path / "songs").mkdir()
    (tmp_path / "songs" / "tune.mid").write_bytes(b"m")
    with pytest.raises(ValueError, match=r"tune\.mid is not one of the files of predictions"):
        Prediction("a.mid", 1, "1", {}, "a.continued", lambda: {".mid": b"m"}).write(tmp_path / "songs")
