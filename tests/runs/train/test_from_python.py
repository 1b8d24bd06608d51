"""`qkv.train`: a recipe trained from Python, on rows, settings and paths."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from run_tiny import TINY

import qkv
from qkv.cli import main
from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.recipes.recipe import Recipe
from qkv.training.logging.metrics_file import read_metrics

CHANGES: dict[str, Any] = dict(item.split("=") for item in TINY if not item.startswith("data."))
CHANGES = {name: int(value) if value.isdigit() else value for name, value in CHANGES.items()}
ROWS = [{"de": f"{n} Katzen", "en": f"{n} cats"} for n in range(80)]
TRANSLATE = {**CHANGES, "tokenizer": {"kind": "char"}, "batching.max_length": 32, "generation.num_beams": 1}


def train(out: Path, **options: Any) -> qkv.Run:
    short = {"steps": "training.max_steps"}
    changes = {name: value for name, value in TRANSLATE.items() if name not in [short.get(key) for key in options]}
    options = {"changes": changes, "columns": {"source": "de", "target": "en"}, "data": ROWS, **options}
    return qkv.train("translate", out, device="cpu", progress=False, **options)


def test_rows_train_and_the_run_is_used_at_once(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    run = train(tmp_path / "run", steps=2, eval_data=ROWS[:5], callbacks=[records.append])
    assert isinstance(run, qkv.Run) and isinstance(run.generate("3 Katzen"), str) and run.path == tmp_path / "run"
    assert records == list(read_metrics(tmp_path / "run/metrics.jsonl"))
    assert {"started", "ended"} <= {record.get("event") for record in records}
    assert run.recipe is not None and run.recipe.training.max_steps == 2
    data = run.recipe.data.to_dict()
    assert (data["kind"], data["train"], data["validation"]) == ("memory", 80, 5)
    assert evaluate_run(run, "validation").examples == 5


def test_an_interrupted_run_of_rows_continues_with_the_same_rows_bit_for_bit(tmp_path: Path) -> None:
    def interrupt(record: dict[str, Any]) -> None:
        if (record["type"], record["step"]) == ("eval", 2):
            signal.raise_signal(signal.SIGINT)

    whole = train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt, match="is saved; continue it with resume=True"):
        train(tmp_path / "run", callbacks=[interrupt])
    resumed = train(tmp_path / "run", resume=True, data=[tuple(row.values()) for row in ROWS])
    weights = dict(whole.model.named_parameters())
    assert all(parameter.equal(weights[name]) for name, parameter in resumed.model.named_parameters())
    with pytest.raises(ValueError, match=r"can't be resumed with another recipe: data\.fingerprint is"):
        train(tmp_path / "run", resume=True, data=[*ROWS[1:], {"de": "x", "en": "y"}])


def test_another_process_says_that_the_rows_are_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "run", steps=1)
    monkeypatch.setattr("qkv.data.memory._known", {})
    assert main(["eval", str(tmp_path / "run"), "--device", "cpu"]) == 2
    message = capsys.readouterr().err
    assert "(80 training rows, fingerprint" in message and len(message.splitlines()) == 1
    files = tmp_path / "pairs.tsv"
    files.write_text("".join(f"{row['de']}\t{row['en']}\n" for row in ROWS))
    assert main(["eval", str(tmp_path / "run"), "--data", "kind=pairs", "--data", f"path={files}"]) == 0


def test_tuples_have_the_fields_of_the_task(tmp_path: Path) -> None:
    rows = [(f"the plot is {word} {n}", word) for n in range(30) for word in ("good", "bad")]
    changes = {**CHANGES, "tokenizer.vocab_size": 300, "training.metric": "loss"}
    run = qkv.train("classify", tmp_path / "run", data=rows, changes=changes, device="cpu", progress=False)
    assert set(run.classify("the plot is good").probabilities) == {"good", "bad"}
    with pytest.raises(
        ValueError, match=r"the first row has review, stars, and this recipe reads text, label; name the"
    ):
        qkv.train("classify", tmp_path / "other", data=[{"review": "good", "stars": 5}])
    with pytest.raises(
        ValueError, match=r"the first row of the test rows has review, label, and this recipe reads text"
    ):
        named = [{"text": text, "label": label} for text, label in rows]
        other = [{"review": text, "label": label} for text, label in rows]
        qkv.train("classify", tmp_path / "other", data={"train": named, "test": other})


def test_recipes_and_sources_in_every_form(tmp_path: Path) -> None:
    loaded = Recipe.load("reverse", TINY)
    for number, recipe in enumerate((loaded, loaded.to_dict())):
        run = qkv.train(recipe, str(tmp_path / str(number)), steps=1, seed=3, device="cpu", progress=False)
        assert run.recipe is not None and (run.recipe.seed, run.recipe.training.max_steps) == (3, 1)
    (tmp_path / "pairs.tsv").write_text("".join(f"{row['de']}\t{row['en']}\n" for row in ROWS))
    run = train(tmp_path / "path", data=tmp_path / "pairs.tsv", columns=None, steps=1)
    settings = {"kind": "pairs", "path": str(tmp_path / "pairs.tsv")}
    again = train(tmp_path / "settings", data=settings, columns=None, steps=1)
    assert run.recipe is not None and again.recipe is not None and run.recipe.data == again.recipe.data
    source = loaded.data.replace(train=50)
    run = qkv.train(loaded, tmp_path / "source", data=source, steps=1, device="cpu", progress=False)
    assert run.recipe is not None and run.recipe.data == source


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="eval_data have the form of data"):
        train(tmp_path / "run", eval_data="pairs.tsv")
    with pytest.raises(ValueError, match="columns are for rows in memory"):
        train(tmp_path / "run", data="pairs.tsv")
    with pytest.raises(ValueError, match="is a comparison of several recipes; run it with `qkv train bottleneck`"):
        qkv.train("bottleneck", tmp_path / "run")
    with pytest.raises(ValueError, match=r"training\.optimizer is a object; give a number"):
        qkv.train("reverse", tmp_path / "run", changes={"training.optimizer": object()})
    with pytest.raises(ValueError, match=r"there is no 'training\.max_step'"):
        qkv.train("reverse", tmp_path / "run", changes={"training.max_step": 3})
    assert not (tmp_path / "run").exists()
