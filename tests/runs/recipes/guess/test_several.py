"""Several files: what is read together, and what can't be."""

from __future__ import annotations

from pathlib import Path

from qkv.data.files.records import RecordFormat
from qkv.runs.recipes.guess.result import Guess
from qkv.runs.recipes.guess.several import of_files


def written(path: Path, lines: int, text: str = "a b c") -> Path:
    path.write_text(f"{text}\n" * lines)
    return path


def test_both_files_of_a_split_go_in_the_order_of_the_training_files(tmp_path: Path) -> None:
    """The user's first training file is the source, and files of the other splits follow by their endings."""
    names = ("dev.en", "train.cs", "train.en", "dev.cs")
    dev_en, train_cs, train_en, dev_cs = (written(tmp_path / name, 4 if "train" in name else 2) for name in names)
    found = of_files([dev_en, train_cs, train_en, dev_cs], RecordFormat())
    assert isinstance(found, Guess) and found.recipe == "translate"
    assert found.settings == (
        f"data.source={train_cs}",
        f"data.target={train_en}",
        f"data.validation_source={dev_cs}",
        f"data.validation_target={dev_en}",
    )
    assert found.seen[0] == "4 lines each in train.cs and train.en, for train"


def test_what_is_not_read_together_is_said(tmp_path: Path) -> None:
    one, other = written(tmp_path / "a.cs", 3), written(tmp_path / "b.en", 1)
    (tmp_path / "folder").mkdir()
    how = RecordFormat()
    assert "folder is a folder or an archive, which is read alone" in str(of_files([one, tmp_path / "folder"], how))
    assert str(of_files([one, tmp_path / "folder" / ".." / "a.cs"], how)).startswith("a file is given twice")
    assert "a.cs has 3 lines and b.en has 1 line, and line n" in str(of_files([one, other], how))
    dev = written(tmp_path / "dev.txt", 2), written(tmp_path / "test.txt", 2)
    assert of_files(dev, how) == "none of dev.txt, test.txt is for training by its name"
    many = [written(tmp_path / f"{i}.txt", 1) for i in range(7)]
    assert "0.txt, 1.txt, 2.txt, 3.txt, 4.txt, 5.txt … are 7 files" in str(of_files(many, how))
    fasta = written(tmp_path / "a.fasta", 2), written(tmp_path / "labels.fasta", 2)
    assert "a.fasta is FASTA, whose labels are in another file" in str(of_files(fasta, how))
