from __future__ import annotations

from pathlib import Path

import pytest

from qkv.io.directories import layout as directory
from qkv.io.directories.layout import Contents, RunState, claim_folder, claim_output, claim_page

LEFT = (".tmp-recipe.yaml", ".tokenizer.json.4711", ".chat_template.jinja.12")


def test_what_killed_processes_were_writing_is_no_run_and_is_cleared_away(tmp_path: Path) -> None:
    for name in LEFT:
        (tmp_path / name).write_text("half")
    assert RunState.of(tmp_path) is RunState.FREE
    (tmp_path / ".mine.7").write_text("not ours")
    assert RunState.of(tmp_path) is RunState.FOREIGN
    directory.tidy(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".mine.7"]


@pytest.mark.parametrize(
    ("line", "stub"), [('{"type": "event", "step": 0}', True), ('{"type": "train", "step": 10}', False), ("half", True)]
)
def test_a_stub_has_taken_no_step(tmp_path: Path, line: str, stub: bool) -> None:
    assert directory.is_stub(tmp_path)
    (tmp_path / directory.METRICS).write_text(line + "\n")
    assert directory.is_stub(tmp_path) is stub
    (tmp_path / directory.CHECKPOINTS / "step-00000001").mkdir(parents=True)
    assert not directory.is_stub(tmp_path)


@pytest.mark.parametrize(("known", "name"), [("config.json", "tokenizer.json"), ("recipe.yaml", "metrics.jsonl")])
def test_a_file_of_a_model_or_a_run_is_not_replaced_by_itself(tmp_path: Path, known: str, name: str) -> None:
    for file in (known, name, "table.csv"):
        (tmp_path / file).write_text("{}")
    claim_output(tmp_path / "table.csv", overwrite=True)
    claim_page(tmp_path / "table.csv", overwrite=True)
    with pytest.raises(ValueError, match=f"{name} is part of a"):
        claim_output(tmp_path / name, overwrite=True)
    with pytest.raises(ValueError, match=f"{name} is part of a"):
        claim_page(tmp_path / name, overwrite=True)


def test_an_input_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("mine")
    (tmp_path / "link.txt").symlink_to("in.txt")
    for name in ("in.txt", "link.txt"):
        with pytest.raises(ValueError, match="is the input, which is never written over"):
            claim_output(tmp_path / name, True, [tmp_path / "missing", tmp_path / "in.txt"])


def test_logs_of_ranks_that_were_killed_before_a_run_began_do_not_stop_another(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank-1.log").write_text("ended\n")
    (tmp_path / ".lock").touch()
    assert RunState.of(tmp_path) is RunState.FREE
    (tmp_path / "logs/mine.txt").touch()
    assert RunState.of(tmp_path) is RunState.FOREIGN


def test_results_are_not_written_among_inputs_or_into_a_run(tmp_path: Path) -> None:
    pictures, run, out = tmp_path / "pictures", tmp_path / "run", tmp_path / "out"
    for folder in (pictures, run):
        folder.mkdir()
    (run / "recipe.yaml").touch()
    masks = Contents("the masks", ("*.mask.png",))
    for folder, how in ((pictures, "is"), (pictures / "masks", "lies in")):
        for contents in (None, masks):
            with pytest.raises(ValueError, match=f"{how} the directory of the input"):
                claim_folder(folder, contents, [pictures])
    with pytest.raises(ValueError, match="is a run, and no other files are written into it"):
        claim_folder(run, None, [pictures / "0.png"])
    (pictures / "0.png").touch()
    with pytest.raises(ValueError, match="is the directory of the input"):
        claim_folder(pictures, None, [pictures / "0.png"])
    claim_folder(pictures / "masks", masks, [pictures / "0.png"])
    claim_folder(out, None, [pictures])
    assert not out.exists()
    claim_folder(out, masks, [pictures])
    for name in (".hidden", "0.mask.png"):
        (out / name).touch()
    claim_folder(out, masks, [pictures])
    (out / "mine.txt").touch()
    claim_folder(out, None, [pictures])
    with pytest.raises(ValueError, match=r"mine\.txt is not one of the masks"):
        claim_folder(out, masks, [pictures])
