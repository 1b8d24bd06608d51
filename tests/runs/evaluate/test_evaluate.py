from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import run_tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.core.metrics import text as text_metrics
from qkv.look.formatting import taken
from qkv.runs.evaluate.evaluate import Evaluated, evaluate_run
from qkv.runs.inference.run import load
from qkv.runs.recipes.evaluation import Evaluation


@pytest.fixture(scope="module")
def trained_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny.assistant(tmp_path_factory.mktemp("runs"))


def test_a_run_evaluates_as_at_its_end(trained: Path, trained_lm: Path) -> None:
    for folder in (trained, trained_lm):
        saved = json.loads((folder / "evaluation.json").read_text())
        found = evaluate_run(load(folder, device="cpu"))
        assert found.metrics == pytest.approx(saved["metrics"])
        assert found.samples == saved["samples"]
        assert found.signatures == saved["signatures"]


def test_rows_of_running_text_are_not_called_examples(trained: Path, trained_lm: Path) -> None:
    for folder, unit in ((trained, "example"), (trained_lm, "row")):
        found = evaluate_run(load(folder, device="cpu")).to_dict()
        assert found["unit"] == unit and taken(found).rstrip("s").endswith(unit)


def test_metrics_of_everything_are_there_with_signatures(trained: Path) -> None:
    run = load(trained, device="cpu")
    assert run.recipe is not None
    everything = run.recipe.change(["evaluation.metrics=null"])
    found = evaluate_run(type(run)(run.model, run.tokenizer, run.generation, run.task, everything, run.path))
    assert set(found.metrics) == {"loss", "perplexity", "bits_per_byte", "exact_match", "bleu", "chrf"}
    assert "tok:13a" in found.signatures["bleu"]


def test_what_can_not_be_evaluated(trained: Path, trained_lm: Path) -> None:
    run, lm = load(trained, device="cpu"), load(trained_lm, device="cpu")
    with pytest.raises(ValueError, match="there is no split 'tests'; did you mean 'test'"):
        evaluate_run(run, "tests")
    with pytest.raises(ValueError, match=r"data\.longst"):
        evaluate_run(run, data=["longst=3"])
    assert lm.recipe is not None
    asking = lm.recipe.change(["evaluation.metrics=[bleu]"])
    with pytest.raises(ValueError, match="bleu compares outputs with references"):
        evaluate_run(type(lm)(lm.model, lm.tokenizer, lm.generation, lm.task, asking, lm.path))


def test_settings_that_an_evaluation_does_not_use_are_refused(trained: Path) -> None:
    run = load(trained, device="cpu")
    with pytest.raises(ValueError, match=r"evaluation\.num_beams is for evaluations during training; give num_beams"):
        evaluate_run(run, evaluation="num_beams=3")
    with pytest.raises(ValueError, match=r"evaluation\.examples is for .*; give max_examples here"):
        evaluate_run(run, evaluation="examples=3")
    of_task = Evaluation(metrics=("bleu",))
    with pytest.raises(ValueError, match=r"the task tag has its own metrics; leave evaluation\.metrics out"):
        of_task.check_again(Evaluation(), "tag", None)
    with pytest.raises(ValueError, match="the task tag has no beam search; leave num_beams out"):
        Evaluation().check_again(Evaluation(), "tag", 4)


def test_metrics_against_worked_values() -> None:
    assert text_metrics.exact_match(["a b", "c", "d "], ["a b", "C", "d"]).value == pytest.approx(2 / 3)
    same = ["the cat sat on the mat", "it rains a lot here"]
    assert text_metrics.bleu(same, same).value == pytest.approx(100)
    assert text_metrics.chrf(["abc"], ["xyz"]).value == 0
    assert text_metrics.perplexity(10 * math.log(7), 10) == pytest.approx(7)
    assert text_metrics.perplexity(1e9, 1) == math.inf
    assert text_metrics.bits_per_byte(8 * math.log(2), 4) == pytest.approx(2)


def test_error_rates_are_of_all_words_together() -> None:
    """Two of the three words of the first are right, an empty output leaves both of the second out: 3 edits, 5 words."""
    found = text_metrics.word_error_rate(["the cat sits", ""], ["the cat sat", "it rains"])
    assert found.value == pytest.approx(3 / 5) and found.details == "jiwer|edits:3|words:5|case:as it is"
    assert text_metrics.character_error_rate(["abc", "xy"], ["abd", "xyz "]).value == pytest.approx(2 / 6)
    assert text_metrics.word_error_rate(["a b c d"], ["a"]).value == 3
    assert text_metrics.word_error_rate(["a"], ["a"]).value == 0
    assert math.isnan(text_metrics.word_error_rate(["a"], [" "]).value)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.text("ab ", max_size=9), st.text("ab ", max_size=9)), min_size=1, max_size=4))
def test_error_rates_are_by_the_edit_distance(pairs: list[tuple[str, str]]) -> None:
    def distance(a: list[str], b: list[str]) -> int:
        row = list(range(len(b) + 1))
        for i, x in enumerate(a, 1):
            before, row[0] = row[0], i
            for j, y in enumerate(b, 1):
                before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
        return row[-1]

    outputs, truths = (list(side) for side in zip(*pairs, strict=True))
    words = sum(len(truth.split()) for truth in truths)
    found = text_metrics.word_error_rate(outputs, truths).value
    wanted = sum(distance(o.split(), t.split()) for o, t in pairs)
    assert math.isnan(found) if not words else found == pytest.approx(wanted / words)


def test_error_rates_are_measured_where_they_are_asked_for(trained: Path) -> None:
    run = load(trained, device="cpu")
    assert run.recipe is not None
    found = evaluate_run(replace(run, recipe=run.recipe.change(["evaluation.metrics=[wer, cer]"])))
    assert set(found.metrics) == {"loss", "wer", "cer"} and "jiwer|edits:" in found.signatures["wer"]


def test_each_metric_says_how_many_examples_it_covers(trained: Path) -> None:
    run = load(trained, device="cpu")
    assert run.recipe is not None
    short = run.recipe.change(["batching.max_length=5", "evaluation.metrics=null"])
    found = evaluate_run(replace(run, recipe=short))
    pairs = list(short.data.examples("test", shuffle=False))
    covered = sum(len(pair["source"].split()) < 5 for pair in pairs)  # one more token ends a side
    assert 0 < covered < len(pairs) == found.examples == 20
    assert found.counts == dict.fromkeys(("loss", "perplexity", "bits_per_byte"), covered)
    assert any(
        f"cover the {covered} of 20 examples that were not skipped" in note and "exact_match" in note
        for note in found.notes
    )
    assert evaluate_run(run).counts == {}


def test_truncated_sources_are_counted(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = load(trained, device="cpu")
    assert run.recipe is not None and not evaluate_run(run).notes
    pairs = list(run.recipe.data.examples("test", shuffle=False))
    long = sum(len(pair["source"].split()) + 1 > 6 for pair in pairs)
    short = run.recipe.change(["batching.max_length=6", "generation.max_new_tokens=4"])
    monkeypatch.setattr(run.model, "max_positions", 6)
    found = evaluate_run(replace(run, recipe=short, generation=short.generation))
    assert long > 0 and any(f"truncated {long} of 20 sources to the model's context" in note for note in found.notes)


def test_the_best_and_the_worst_outputs(trained: Path) -> None:
    found = evaluate_run(load(trained, device="cpu"))
    assert found.extremes is not None and found.extremes.by == "chrf"
    assert "extremes" not in found.to_dict()
    kept = json.loads((trained / "extremes.json").read_text())
    assert (kept["best"], kept["worst"]) == (found.extremes.best, found.extremes.worst)
    scores = [sample["score"] for sample in found.extremes.best + found.extremes.worst[::-1]]
    assert len(scores) == 10 and scores == sorted(scores, reverse=True)
    for sample in found.extremes.worst:
        assert sample["score"] == text_metrics.chrf([sample["output"]], [sample["target"]]).value


def test_conversations_are_replied_to(trained_chat: Path, tmp_path: Path) -> None:
    user, assistant = {"role": "user", "content": "3 + 1?"}, {"role": "assistant", "content": "4"}
    long = {"role": "user", "content": "1 + " * 1500}
    chats = [[user, assistant, user, assistant, user], [long, assistant], [assistant, user], [user, assistant]]
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    run = load(trained_chat, device="cpu")
    settings = [f"data.{name}path={path}" for name in ("", "validation_", "test_")]
    assert run.recipe is not None
    recipe = run.recipe.change([*settings, "evaluation.samples=4"])
    found = evaluate_run(replace(run, recipe=recipe)).samples
    assert [sample["messages"] for sample in found] == [[user, assistant, user], [user]]
    assert [(sample["target"], sample["source"].splitlines()[-1]) for sample in found] == [("4", "user: 3 + 1?")] * 2


def test_json_has_no_word_for_what_is_not_finite() -> None:
    found = Evaluated("test", 1, {"a": math.nan, "b": math.inf, "c": 1.5}, {}, [{"score": -math.inf}], [], 0.0)
    read = json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert read["metrics"] == {"a": None, "b": None, "c": 1.5} and read["samples"] == [{"score": None}]
