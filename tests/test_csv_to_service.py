"""docs/csv-to-service.md runs as a whole, and onnxruntime answers as qkv does, also for texts that are cut."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tokenizers import Tokenizer

import qkv
from qkv.cli import main
from qkv.runs.inference.classify import _rows

PAGE = Path(__file__).parents[1] / "docs" / "csv-to-service.md"
TINY = ["model.d_model=16", "model.d_ff=32", "model.n_layers=1", "model.n_heads=2", "training.max_steps=20"]
MESSAGES = [
    "Hello, my refund is missing today",
    "Dear team, my login does not work as before",
    "Dear team, my order was changed as before " * 40,
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def in_process(command: list[str], **_: Any) -> SimpleNamespace:
    """What `subprocess.run` gives for a command of qkv, without another start of Python."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(command[1:]) == 0
    return SimpleNamespace(stdout=out.getvalue())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The folder in which the page was run, what its programs define, and what they print."""
    pytest.importorskip("onnxruntime", reason="the end of the page runs the model with it")
    table, matrix, handler, onnx = blocks("python")
    train, evaluate, predict, convert = (
        words[1:] for block in blocks("sh") for line in block.splitlines() if (words := shlex.split(line))[0] == "qkv"
    )
    folder = tmp_path_factory.mktemp("service")
    found: dict[str, Any] = {"folder": folder}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)

        def run(block: str, name: str) -> None:
            out = io.StringIO()
            found[name] = {"__name__": name}
            with redirect_stdout(out):
                exec(compile(block, f"{PAGE.name}:{name}", "exec"), found[name])
            found[name]["printed"] = out.getvalue()

        run(table, "table")
        settings = [one for one in train if not one.startswith("training.max_steps")]
        assert main([*settings[:2], *TINY, *settings[2:]]) == 0
        found["json"] = json.loads(in_process(["qkv", *evaluate]).stdout)
        with pytest.MonkeyPatch.context() as instead:
            instead.setattr(subprocess, "run", in_process)
            run(matrix, "matrix")
        assert main(predict) == 0
        run(handler, "handler")
        assert main(convert) == 0
        run(onnx, "onnx")
    return found


def test_the_matrix_has_every_test_example(page: dict[str, Any]) -> None:
    header, *lines = (line.split("\t") for line in page["matrix"]["printed"].splitlines())
    assert set(header[1:]) == {line[0] for line in lines}
    assert sum(int(cell) for line in lines for cell in line[1:]) == page["json"]["examples"]


def test_the_guess_and_the_sizes_are_what_the_page_says(page: dict[str, Any]) -> None:
    with (page["folder"] / "messages.csv").open(encoding="utf-8", newline="") as file:
        teams = [row["team"] for row in csv.DictReader(file)]
    assert len(teams) == 1000
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"{team} ({teams.count(team)})" in text for team in set(teams))
    recipe = yaml.safe_load((page["folder"] / "runs/teams/recipe.yaml").read_text(encoding="utf-8"))
    assert (recipe["data"]["text"], recipe["data"]["label"]) == ("message", "team")
    assert f"`task.longest`, {recipe['task']['longest']} in this run" in text


def test_the_table_keeps_its_columns(page: dict[str, Any]) -> None:
    with (page["folder"] / "answers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    run = page["handler"]["run"]
    for row, classified in zip(rows, run.classify([row["message"] for row in rows]), strict=True):
        assert row["prediction"] == classified.label
        assert float(row["probability"]) == pytest.approx(classified.probabilities[classified.label], abs=1e-5)


def test_the_handler_answers_from_threads(page: dict[str, Any]) -> None:
    first, second, refused = page["handler"]["printed"].splitlines()
    assert "'status': 200" in first and "'status': 200" in second and "'status': 400" in refused
    alone = page["handler"]["run"].classify(MESSAGES[0])
    assert f"'team': '{alone.label}'" in first


def test_onnxruntime_answers_as_qkv_also_where_a_text_is_cut(page: dict[str, Any]) -> None:
    expected = page["handler"]["run"].classify(MESSAGES)
    assert isinstance(expected[0], qkv.runs.inference.classify.Classified)
    for (label, probability), ours in zip(page["onnx"]["classify"](MESSAGES), expected, strict=True):
        assert label == ours.label and probability == pytest.approx(ours.probabilities[ours.label], abs=1e-5)


def test_the_tokenizer_beside_the_graph_cuts_as_the_run_does(page: dict[str, Any]) -> None:
    """Texts of the run's limit, one token more, and far more."""
    tokenizer = Tokenizer.from_file(str(page["folder"] / "exported" / "tokenizer.json"))
    words = MESSAGES[2].split()
    lengths = {len(tokenizer.encode(" ".join(words[:n])).ids): n for n in range(1, len(words))}
    texts = [" ".join(words[:n]) for n in (5, lengths[127], lengths[127] + 1, lengths[127] + 2, len(words))]
    expected = [ids for ids, _ in _rows(page["handler"]["run"], texts, None)]
    assert [row.ids for row in tokenizer.encode_batch(texts)] == expected
    assert [len(ids) for ids in expected[1:]] == [127, 128, 128, 128]
    tokenizer.no_truncation()
    assert len(tokenizer.encode(texts[-1]).ids) > 200
