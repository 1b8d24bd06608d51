"""What a finished run says of new inputs is what its evaluation said of the same examples."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qkv.cli import main
from qkv.run.evaluate import evaluate_run
from qkv.run.load import Run, load
from qkv.run.recipe import Recipe
from qkv.run.train import train

SHORT = [
    *("training.max_steps=6", "training.eval_every=6", "training.save_every=6", "training.schedule.warmup=1"),
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=16", "training.final=last"),
    *("evaluation.examples=2", "evaluation.test_examples=2", "evaluation.samples=20"),
]
Train = Callable[..., Run]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A run of a recipe, cut short; the same one for the same settings."""
    made: dict[tuple[str, ...], Run] = {}

    def run(name: str, *settings: str) -> Run:
        if (name, *settings) not in made:
            out = tmp_path_factory.mktemp(name) / "run"
            train(Recipe.load(name, [*SHORT, *settings]), out, device="cpu")
            made[name, *settings] = load(out, device="cpu")
        return made[name, *settings]

    return run


def examples(run: Run, count: int = 12) -> list[dict[str, Any]]:
    """Some of a run's test examples."""
    assert run.recipe is not None
    return [one for one, _ in zip(run.recipe.data.examples("test"), range(count), strict=False)]


def evaluated(run: Run, count: int = 12) -> dict[str, dict[str, Any]]:
    """The samples of an evaluation of these, by their source."""
    assert run.recipe is not None
    return {sample["source"]: sample for sample in evaluate_run(run, "test", max_examples=count).samples}


# -- texts ---------------------------------------------------------------------------------------------------------


def test_tags_are_those_of_the_evaluation(trained: Train) -> None:
    run = trained("tag", "data.train=300", "task.longest=16")  # so short that sentences become several rows
    told = evaluated(run)
    texts = [one["text"] for one in examples(run)]
    made = run.predict(texts)
    assert {one.input: one.said for one in made} == {text: sample["output"] for text, sample in told.items()}
    assert len({tag for one in made for tag in one.value}) > 1
    for one in made:
        words, tags = one.fields["words"], one.fields["tags"]
        assert words == one.input.split() and len(tags) == len(words)
        for entity in one.fields["entities"]:
            assert entity["text"] == " ".join(words[entity["start"] : entity["stop"]])
            assert tags[entity["start"]] == f"B-{entity['type']}"
    assert run.predict([f"  {texts[0]} "])[0].value == made[0].value


def test_symbols_have_tags_where_words_are_symbols(trained: Train) -> None:
    run = trained("protein", "data.train=200")
    told = evaluated(run)
    made = run.predict([one["text"] for one in examples(run)])
    assert {one.input: one.said for one in made} == {text: sample["output"] for text, sample in told.items()}
    assert "entities" not in made[0].fields and len(made[0].fields["tags"]) == len(made[0].input)


@pytest.mark.parametrize("margin", [0.0, -5.0, 1e3])
def test_answers_are_those_of_the_evaluation(trained: Train, margin: float) -> None:
    run = trained("answer", "data.train=300", "task.longest=40", "task.overlap=8", f"task.margin={margin}")
    told = evaluated(run)
    made = run.predict([f"{one['question']}\t{one['context']}" for one in examples(run)])
    assert {one.input.replace("\t", "\n"): one.said for one in made} == {k: one["output"] for k, one in told.items()}
    for one in made:
        found, context = one.value, one.input.split("\t")[1]
        assert found.answer is None or context[found.start :].startswith(found.answer)
        assert (found.answer is None) == (found.none - found.score > margin) == (one.said == "(no answer)")


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_line_an_input_or_its_json(trained: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("tag", "data.train=300", "task.longest=16")
    texts = ["Kavera Lon works here .", "It rained ."]
    assert main(["predict", str(run.path), *texts]) == 0
    assert capsys.readouterr().out.splitlines() == [one.said for one in run.predict(texts)]
    assert main(["predict", str(run.path), "--json", *texts]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["input"] == texts[0] and first["words"] == texts[0].split() and len(first["tags"]) == 5


def test_what_can_not_be_read_is_one_sentence(
    trained: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = trained("tag", "data.train=300", "task.longest=16")
    answers = trained("answer", "data.train=300", "task.longest=40", "task.overlap=8", "task.margin=0.0")
    mistakes: list[tuple[Run, list[str], str]] = [
        (tags, ["a", " "], "input 2 is empty"),
        (tags, ["a", "--out", str(tmp_path / "out")], "there are no files"),
        (answers, ["who?\tAnn.", "who?"], "text 2 is 'who?', and this run reads QUESTION<tab>CONTEXT"),
        (answers, ["who?\t "], "QUESTION<tab>CONTEXT"),
    ]
    for run, given, wanted in mistakes:
        assert main(["predict", str(run.path), *given]) == 2
        said = capsys.readouterr().err
        assert wanted in said and len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="put a single one into a list"):
        tags.predict("a")
