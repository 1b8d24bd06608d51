"""The command `qkv eval`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from qkv.cli import main


def write_pairs(folder: Path) -> Path:
    """Write pairs with one or two references each."""
    records = [
        {"source": "a b c", "target": ["c b a", "c b"]},
        {"source": "d e", "target": "e d"},
        {"source": "f g h", "target": ["h g f", "h g"]},
    ]
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_out_writes_every_output_with_its_references(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, out = write_pairs(tmp_path), tmp_path / "new" / "outputs.jsonl"
    recipe = (trained / "recipe.yaml").read_text()
    arguments = [f"path={pairs}", "kind=pairs", f"test_path={pairs}", f"validation_path={pairs}"]
    data = [part for argument in arguments for part in ("--data", argument)]
    assert (
        main(
            [
                "eval",
                str(trained),
                *data,
                "--evaluation",
                "evaluation.metrics=null",
                "--out",
                str(out),
                "--json",
                "--device",
                "cpu",
            ]
        )
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    rows = rows_of(out)
    assert [row["source"] for row in rows] == ["a b c", "d e", "f g h"]
    assert [row["references"] for row in rows] == [["c b a", "c b"], ["e d"], ["h g f", "h g"]]
    assert "outputs" not in result and (trained / "recipe.yaml").read_text() == recipe
    hypotheses = [row["hypothesis"] for row in rows]
    streams = [["c b a", "e d", "h g f"], ["c b", None, "h g"]]
    assert result["metrics"]["chrf"] == CHRF().corpus_score(hypotheses, streams).score
    assert result["metrics"]["bleu"] == BLEU().corpus_score(hypotheses, streams).score
    assert "nrefs:var" in result["signatures"]["bleu"]
    for row in rows:
        scores = row["scores"]
        assert scores["chrf"] == CHRF().sentence_score(row["hypothesis"], row["references"]).score
        assert scores["bleu"] == BLEU(effective_order=True).sentence_score(row["hypothesis"], row["references"]).score
        assert scores["exact_match"] == float(row["hypothesis"].strip() in row["references"])


def test_chrf_plus_plus_and_ter_are_measured_if_named(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "outputs.jsonl"
    settings = ["--evaluation", "metrics=[chrf++, ter]", "--out", str(out), "--json", "--device", "cpu"]
    assert main(["eval", str(trained), *settings]) == 0
    result = json.loads(capsys.readouterr().out)
    rows = rows_of(out)
    hypotheses, references = [row["hypothesis"] for row in rows], [[row["references"][0] for row in rows]]
    assert set(result["metrics"]) == {"loss", "chrf++", "ter"} and len(rows) == result["examples"]
    assert result["metrics"]["chrf++"] == CHRF(word_order=2).corpus_score(hypotheses, references).score
    assert result["metrics"]["ter"] == TER().corpus_score(hypotheses, references).score
    assert "nw:2" in result["signatures"]["chrf++"]


def test_running_text_has_no_outputs_to_write(
    trained_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(trained_lm), "--out", str(tmp_path / "x.jsonl"), "--device", "cpu"]) == 2
    assert "running text, which has no outputs to write" in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()


def test_out_is_not_a_file_of_the_data(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = write_pairs(tmp_path)
    before = pairs.read_bytes()
    settings = ("--data", "kind=pairs", "--data", f"path={pairs}", "--data", f"test_path={pairs}")
    assert main(["eval", str(trained), *settings, "--out", str(pairs), "--overwrite"]) == 2
    assert "is the input, which is never written over" in capsys.readouterr().err and pairs.read_bytes() == before


def test_totals_in_other_files_are_told(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("source,target\n" + "".join(f"a b {n},b a {n}\n" for n in range(9)) + "Total,9\n")
    names = ("path", "test_path", "validation_path")
    data = [part for name in names for part in ("--data", f"data.{name}={path}")]  # with or without `data.`
    assert main(["eval", str(trained), "--data", "kind=pairs", *data, "--device", "cpu"]) == 0
    assert "Data: line 11 ('Total') of 'a.csv' looks like a row of totals" in " ".join(capsys.readouterr().out.split())
