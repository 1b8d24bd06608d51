"""Classifiers and comparers of texts, from a recipe to what a finished run says; the recipes themselves, cut short."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import qkv
from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import preview
from qkv.runs.train.train import train

SMALL = [
    *("training.max_steps=2", "training.eval_every=2", "training.save_every=2", "evaluation.examples=20"),
    *("evaluation.test_examples=20", "model.d_model=16", "model.d_ff=32", "model.n_layers=1", "model.n_heads=2"),
    *("tokenizer.vocab_size=300", "data.train=300", "batching.tokens=1024", "training.schedule.warmup=1"),
]


def trained(name: str, out: Path, *settings: str) -> Run:
    done = train(Recipe.load(name, [*SMALL, *settings]), out, device="cpu")
    assert done.evaluation is not None and done.report is not None
    return load(out, device="cpu")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained("classify", tmp_path_factory.mktemp("classify") / "run")


TEXTS = [
    "the plot is not dull",
    "although the cast is warm , the music is loud",
    "the humor is bad but the script is brave",
]


def test_classes_have_their_names_and_probabilities(classifier: Run) -> None:
    found = classifier.classify(TEXTS)
    for one in found:
        assert set(one.probabilities) == {"negative", "positive"}
        assert sum(one.probabilities.values()) == pytest.approx(1)
        assert one.label == max(one.probabilities, key=one.probabilities.__getitem__) == next(iter(one.probabilities))
    for text, one in zip(TEXTS, found, strict=True):  # alone as in a batch
        assert classifier.classify([text])[0].probabilities == pytest.approx(one.probabilities, abs=1e-5)


def test_a_finished_run_says_what_it_said_in_evaluation(classifier: Run) -> None:
    assert classifier.path is not None
    for sample in json.loads((classifier.path / "samples.json").read_text()):
        assert classifier.classify([sample["source"]])[0].label == sample["output"]


def test_a_longformers_first_token_sees_all_in_training_and_when_it_is_asked(tmp_path: Path) -> None:
    sizes = ["model.preset=longformer-base-4096", "model.windows=4", "model.max_positions=128"]
    sizes += ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=32"]
    run = trained("classify", tmp_path / "run", *sizes)
    assert run.recipe is not None and run.recipe.task is not None
    assert run.recipe.task.to_dict()["global_tokens"] == "first"
    for sample in json.loads((tmp_path / "run/samples.json").read_text()):
        assert run.classify([sample["source"]])[0].label == sample["output"]
    blind = run.recipe.model_copy(update={"task": run.recipe.task.replace(global_tokens="none")})
    assert run.classify(TEXTS)[0].probabilities != replace(run, recipe=blind).classify(TEXTS)[0].probabilities


def test_examples_are_judged_from_the_first_not_from_the_shortest(classifier: Run) -> None:
    assert classifier.recipe is not None
    stand = [
        example["text"] for example, _ in zip(classifier.recipe.data.examples("validation"), range(3), strict=False)
    ]
    found = evaluate_run(classifier, "validation", max_examples=3)
    held = sum(1 for _ in classifier.recipe.data.examples("validation"))
    assert (found.examples, found.available) == (3, held)
    assert {sample["source"] for sample in found.samples} <= set(stand)


def test_what_can_not_be_read_is_told(classifier: Run) -> None:
    with pytest.raises(ValueError, match="text 2 is empty"):
        classifier.classify(["a", " "])
    with pytest.raises(ValueError, match=r"texts and pairs differ in number \(2 and 1\)"):
        classifier.classify(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="give the texts and pairs both as single texts or both as lists"):
        classifier.classify("a", ["b"])
    assert classifier.classify("a") == classifier.classify(["a"])[0]


def test_fine_tuning_keeps_the_weights_and_gives_the_model_another_head(classifier: Run, tmp_path: Path) -> None:
    rows = ["text\tlabel"] + [f"the plot is {word}\t{word}" for word in ("good", "bad", "dull") for _ in range(20)]
    (tmp_path / "x.tsv").write_text("\n".join(rows))
    data = [f"data.{name}={tmp_path / 'x.tsv'}" for name in ("path", "validation_path", "test_path")]
    settings = [*data, "data.kind=labelled", f"model={classifier.path}", "training.optimizer.lr=1e-12"]
    short = [s for s in SMALL if not s.startswith(("model.", "tokenizer.", "data."))]
    train(Recipe.load("classify", [*short, *settings]), tmp_path / "run", device="cpu")
    tuned = load(tmp_path / "run", device="cpu")
    assert set(tuned.classify(["the plot is bad"])[0].probabilities) == {"good", "bad", "dull"}
    before, after = classifier.model.state_dict(), tuned.model.state_dict()
    assert all(
        torch.allclose(value, after[name], atol=1e-6) for name, value in before.items() if name.startswith("encoder")
    )
    assert after["head.out.weight"].shape[0] == 3


@pytest.mark.parametrize(("name", "shown"), [("classify", ("positive", "negative")), ("choose", ("0", "1", "2", "3"))])
def test_what_the_model_sees_is_shown(name: str, shown: tuple[str, ...]) -> None:
    for row in preview(Recipe.load(name, SMALL)).rows:
        lines = row.lines()
        assert lines[0][0] == "ids" and "[CLS]" in lines[0][1] and lines[-1][1] in shown


def test_vectors_of_texts_are_compared_by_their_cosines(tmp_path: Path) -> None:
    run = trained("similarity", tmp_path / "run")
    a, b = (
        ["the dog chased the girl in the yard", "the thief"],
        ["the hound", "in the road the cat was hit by the thief"],
    )
    found = run.similarity(a, b)
    u, v = run.embed(a), run.embed(b)  # the same vectors: means of the last hidden states
    assert found == pytest.approx(
        [float(torch.cosine_similarity(x, y, dim=0)) for x, y in zip(u, v, strict=True)], abs=1e-5
    )
    assert run.similarity(a, a) == pytest.approx([1, 1], abs=1e-5)
    with pytest.raises(ValueError, match="has the head sentence-vector, which does not classify"):
        run.classify(a)
    with pytest.raises(ValueError, match=r"the two lists of texts differ in length \(2 and 1\); give pairs"):
        run.similarity(a, b[:1])


def test_a_score_for_both_texts_together(tmp_path: Path) -> None:
    together = ("task.kind=regress", "head.kind=sequence-classifier", "head.pool=first", "objective.kind=labels")
    run = trained("similarity", tmp_path / "run", *together)
    (score,) = run.similarity(["the dog"], ["the cat"])
    assert -5 < score < 10 and score != run.similarity(["the cat"], ["the dog"])[0]
    with pytest.raises(ValueError, match="predicts a number, not a class; use `qkv predict`"):
        run.classify(["the dog"])


def test_pairs_that_belong_together(tmp_path: Path) -> None:
    run = trained("similarity", tmp_path / "run", "objective={kind: contrastive}", "task.positive=3")
    assert -1 <= run.similarity(["the dog"], ["the cat"])[0] <= 1


def test_candidates_are_chosen_from(tmp_path: Path) -> None:
    run = trained("choose", tmp_path / "run")
    assert run.model.spec.head.labels == 1  # type: ignore[union-attr]


def test_summaries_are_measured_by_rouge(tmp_path: Path) -> None:
    run = trained("summarize", tmp_path / "run", "generation.max_new_tokens=4")
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())["metrics"]
    assert {"rouge1", "rouge2", "rougeL", "exact_match"} <= set(found)
    assert len(run.generate(["on sunday oslo met turin"])) == 1


def test_a_classifier_of_the_hub_names_its_own_classes(tmp_path: Path) -> None:
    """As `transformers` scores the same texts, special tokens and all."""
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    sizes = {
        "vocab_size": 11,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = transformers.BertConfig(
        **sizes, id2label={0: "cat", 1: "dog", 2: "bee"}, label2id={"cat": 0, "dog": 1, "bee": 2}
    )
    theirs = transformers.BertForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    run = qkv.load(tmp_path, device="cpu")
    texts, pairs = ["the cat", "a mat sat"], ["on the mat", "the cat sat on a cat"]
    for second in (None, pairs):
        with torch.no_grad():
            encoded = tokenizer(texts, second, padding=True, return_tensors="pt")
            expected = theirs(**encoded).logits.softmax(-1)
        for one, row in zip(run.classify(texts, second), expected.tolist(), strict=True):
            assert [one.probabilities[name] for name in ("cat", "dog", "bee")] == pytest.approx(row, abs=1e-5)
