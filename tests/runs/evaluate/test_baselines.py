"""Simple methods stand beside a model's scores, on the same examples, and say what to try when they are better."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from qkv.cli.results import show
from qkv.core.metrics.baselines import Baseline
from qkv.data.memory import Memory
from qkv.runs.evaluate.baselines import advice
from qkv.runs.evaluate.evaluate import Evaluated, with_baselines
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.tagging.task import Tag
from qkv.runs.tasks.text_classification.task import Classify
from qkv.runs.tasks.text_regression.task import Regress
from qkv.runs.tasks.text_similarity.task import Similarity

WORDS = ("film", "actor", "plot", "music", "scene", "good", "dull")


def reviews(n: int, seed: int) -> list[dict[str, Any]]:
    draw, rows = random.Random(seed), []
    for _ in range(n):
        words = draw.choices(WORDS[:5], k=8)
        label = draw.choice(("good", "good", "dull"))
        rows.append({"text": " ".join([*words, label if draw.random() < 0.9 else "film"]), "label": label})
    return rows


def source(train: list[dict[str, Any]], test: list[dict[str, Any]]) -> Memory:
    return Memory.of({"train": train, "validation": test, "test": test})


TRAIN, TEST = reviews(300, 0), reviews(60, 1)


def recipe(*settings: str) -> Recipe:
    loaded = Recipe.load("classify", ["data={kind: labelled, path: x.csv}", *settings])
    return loaded.model_copy(update={"data": source(TRAIN, TEST), "task": Classify(classes=("dull", "good"))})


def evaluated(accuracy: float, *notes: str) -> Evaluated:
    truth = [example["label"] for example in TEST]
    confusions = [("dull", "good", truth.count("dull")), ("good", "good", truth.count("good"))]
    return Evaluated(
        "test", 60, {"accuracy": accuracy, "loss": 0.7}, {}, [], list(notes), 1.0, 60, confusions=confusions
    )


def test_the_most_frequent_class_and_naive_bayes_beside_a_classifier() -> None:
    found = with_baselines(evaluated(0.55), recipe(), "test", None)
    constant, bayes = found.baselines
    truth = [example["label"] for example in TEST]
    guessed = DummyClassifier().fit([""] * 60, truth).predict([""] * 60)
    assert constant["name"] == "the most frequent class" and constant["about"] == "always 'good'"
    assert constant["metrics"]["accuracy"] == pytest.approx(accuracy_score(truth, guessed))
    assert constant["metrics"]["macro_f1"] == pytest.approx(f1_score(truth, guessed, average="macro"))
    assert constant["metrics"]["mcc"] == pytest.approx(matthews_corrcoef(truth, guessed))
    assert bayes["name"] == "naive Bayes" and bayes["metrics"]["accuracy"] > 0.85
    assert found.to_dict()["baselines"] == found.baselines


def test_what_to_try_is_said_if_a_simple_method_is_better() -> None:
    (note,) = with_baselines(evaluated(0.55), recipe(), "test", None).notes
    assert (
        note.startswith("naive Bayes has 0.9")
        and "and the model 0.55; try a pretrained model (model=DIRECTORY) or" in note
    )
    cut = with_baselines(evaluated(0.55, "60 examples read; 9 over-long cut"), recipe(), "test", None).notes[1]
    assert cut.endswith("more steps (training.max_steps) or longer texts (task.longest, now 128)")
    assert with_baselines(evaluated(1.0), recipe(), "test", None).notes == []


def test_only_the_examples_that_were_evaluated_count() -> None:
    limited = with_baselines(evaluated(0.5), recipe(), "test", 7).baselines[1]["metrics"]["accuracy"]
    assert limited * 7 == pytest.approx(round(limited * 7))


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show(with_baselines(evaluated(0.55), recipe(), "test", None).to_dict())
    out = capsys.readouterr().out
    assert "beside simple methods, on the same examples" in out and "this model" in out and "naive Bayes" in out


def test_the_usual_tags_beside_a_tagger() -> None:
    train = [{"words": ["Anna", "sees", "old", "Rome"], "tags": ["B-PER", "O", "O", "B-LOC"]}] * 3
    test = [{"words": ["Anna", "likes", "Rome"], "tags": ["B-PER", "O", "B-LOC"]}, {"words": ["x"], "tags": ["B-LOC"]}]
    task = Tag(tags=("O", "B-LOC", "B-PER"), scheme="iob2")
    train, test = ([{"text": " ".join(row["words"]), **row} for row in part] for part in (train, test))
    constant, by_word = task.baselines(source(train, test), test)
    assert constant.metrics["accuracy"] == 0.25 and constant.metrics["entity_f1"] == 0  # O, of four words
    assert by_word.metrics["entity_recall"] == pytest.approx(2 / 3) and by_word.metrics["entity_precision"] in (
        1.0,
        2 / 3,
    )


def test_ridge_regression_beside_a_regression_and_cosines_beside_similarity() -> None:
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=9)) for _ in range(200)]
    rows = [{"text": text, "score": text.count("good") - text.count("dull")} for text in texts]
    (ridge,) = Regress().baselines(source(rows[:150], rows[150:]), rows[150:])
    assert ridge.name == "ridge regression" and ridge.metrics["spearman"] > 0.9
    pairs = [
        {"text": a, "pair": f"{a} {b}", "score": len(set(a.split()) & set(b.split()))}
        for a, b in zip(texts[:80], texts[80:160], strict=True)
    ]
    (cosine,) = Similarity().baselines(source(pairs, pairs), pairs)
    assert cosine.name == "cosine of words" and -1 <= cosine.metrics["spearman"] <= 1
    same = [{**pair, "pair": pair["text"]} for pair in pairs[:20]] + [{**p, "pair": "other words"} for p in pairs[:20]]
    scored = [{**pair, "score": float(i < 20)} for i, pair in enumerate(same)]
    (cosine,) = Similarity().baselines(source(pairs, pairs), scored)
    assert cosine.metrics["spearman"] > 0.9


def test_retrieval_by_words_beside_pairs_without_scores() -> None:
    """By the metric that chooses the best weights, so what to try can be said."""
    draw = random.Random(0)
    texts = [f"{' '.join(draw.choices(WORDS, k=6))} {i}" for i in range(80)]
    pairs = [{"text": text, "pair": f"{text.split()[-1]} {text.split()[0]}"} for text in texts]
    train, test = pairs[:60], pairs[60:]
    loaded = Recipe.load("similarity", ["data={kind: labelled, path: x.csv}", "objective=contrastive"])
    chosen = loaded.training.replace(metric=Similarity().measured(loaded.training.metric, source(train, test)))
    unscored = loaded.model_copy(update={"data": source(pairs, test), "task": Similarity(), "training": chosen})
    poor = Evaluated("test", 20, {"mrr": 0.2, "loss": 3.0}, {}, [], [], 1.0, 20)
    found = with_baselines(poor, unscored, "test", None)
    (cosine,) = found.baselines
    assert cosine["name"] == "cosine of words" and cosine["metrics"]["mrr"] == 1  # the numbers occur in one pair each
    assert found.notes[0].startswith("cosine of words has 1 in MRR on these examples, and the model 0.2; try")
    assert (
        Similarity().baselines(source(train, test), [{"text": text} for text in texts]) == []
    )  # paired with themselves


def test_a_task_without_simple_methods_and_no_task_have_none() -> None:
    plain = recipe().model_copy(update={"task": None})
    assert with_baselines(evaluated(0.5), plain, "test", None).baselines == []


@pytest.mark.parametrize(("metric", "best"), [("accuracy", 1.0), ("bleu", 100.0), ("pearson", 1.0)])
def test_a_model_that_can_not_be_better_gets_no_advice(metric: str, best: float) -> None:
    loaded = Recipe.load("classify")
    recipe = loaded.model_copy(update={"training": loaded.training.model_copy(update={"metric": metric})})
    baseline = Baseline("naive Bayes", {metric: best})
    assert not list(advice(recipe, [baseline], {metric: best}, False))
    assert list(advice(recipe, [baseline], {metric: 0.9 * best}, False))
