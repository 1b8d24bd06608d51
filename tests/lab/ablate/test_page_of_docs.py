"""The commands of docs/ablations.md run, in small."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from qkv.cli import main
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import ABLATE, tree

PAGE = (Path(__file__).parents[3] / "docs" / "ablations.md").read_text(encoding="utf-8")
LINES = [
    line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
COMMANDS = [words[1:] for words in (shlex.split(line, comments=True) for line in LINES) if words]
SMALL = [
    *("model.d_model=16", "model.n_layers=1", "model.d_ff=16", "data.train=60", "data.validation=8", "data.test=8"),
    *("tokenizer.vocab_size=300", "batching.tokens=512", "batching.workers=0", "training.max_steps=2"),
    *("training.eval_every=null", "training.save_every=null", "evaluation.examples=4", "evaluation.test_examples=4"),
    *("generation.max_new_tokens=2", "training.precision=fp32"),
]


@pytest.mark.slow  # tests/test_docs.py and tests/lab/commands/test_ablate.py run one each
@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_each_command_of_the_page_runs(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = argv if "--seeds" in argv else [*argv, "--seeds", "1"]
    assert main([*short[:2], *SMALL, *short[2:]]) == 0, capsys.readouterr().err
    assert "open runs/" in capsys.readouterr().out
    assert (tmp_path / "runs" / f"{argv[1]}-ablation" / "table.tex").is_file()


def test_the_page_names_every_shipped_ablation() -> None:
    shipped = {name for name in packaged() if tree(name).get(ABLATE)}
    assert shipped == set(re.findall(r"^\| `(ablate-[\w-]+)` \|", PAGE, re.MULTILINE))
