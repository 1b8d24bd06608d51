"""Text classification: classes of the training data, batches, and labels that are no class."""

from __future__ import annotations

from typing import Any

import pytest
from whole_texts_data import LABELLED, PLAIN, TYPED, WORDS, Given, batch, chance

from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.readers.labelled_text import Labelled
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.runs.tasks.text_classification.task import Classify


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TokenizerSpec.from_dict({"kind": "word", "vocab_size": 50}), [WORDS])


def test_classes_match_the_training_data(tokenizer: Tokenizer) -> None:
    task = Classify().resolve(Given(train=tuple(LABELLED)), tokenizer, PLAIN)
    assert (task.classes, task.n_labels, task.segments) == (("no", "yes"), 2, 0)
    numbers = [{"text": "a", "label": str(i)} for i in (10, 9, 2)]
    assert Classify().resolve(Given(train=tuple(numbers)), tokenizer, PLAIN).classes == ("2", "9", "10")
    kept = Classify(classes=("yes", "no")).resolve(Given(train=tuple(LABELLED)), tokenizer, TYPED)
    assert (kept.classes, kept.segments) == (("yes", "no"), 2)


def test_a_batch_of_texts_and_classes(tokenizer: Tokenizer) -> None:
    found = batch(Classify(classes=("no", "yes")), LABELLED, tokenizer)
    assert found.inputs["ids"].shape == (3, 5) and "token_types" not in found.inputs
    rows = {tuple(ids[:n].tolist()): y for ids, n, y in zip(
        found.inputs["ids"], found.inputs["layout"].lengths, found.labels.tolist(), strict=True
    )}  # fmt: skip
    expected = {(2, *tokenizer.encode(e["text"]), 3): int(e["label"] == "yes") for e in LABELLED}
    assert rows == expected
    assert (found.tokens, found.slots, found.counts) == (12, 15, {"loss": 3})


@pytest.mark.parametrize(
    ("label", "said", "reason"),
    [
        ("noo", "the class 'noo' is not in the training data; did you mean 'no'", "of a class unseen in training"),
        (0.5, "the label is 0.5, a float; a class is a text or a whole number", "whose label is no class"),
        ([1], r"the label is \[1\], a list", "whose label is no class"),
    ],
)
def test_a_label_that_is_none_is_refused_by_its_place_or_counted(
    label: Any, said: str, reason: str, tokenizer: Tokenizer
) -> None:
    example = {"text": "a", "label": label, "where": "'x.csv', line 7"}
    task = Classify(classes=("no", "yes"))
    with pytest.raises(ValueError, match=f"'x.csv', line 7: {said}") as error:
        task.item(example, tokenizer, chance(False))
    assert "task.on_error=skip" in str(error.value)
    assert task.replace(on_error="skip").item(example, tokenizer, chance(False)) == reason


def test_one_class_is_nothing_to_tell_apart(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="only the class 'x', and there is nothing to tell apart"):
        Classify().resolve(Given(train=({"text": "a", "label": "x"},)), tokenizer, PLAIN)
    with pytest.raises(ValueError, match="there is no label; name the column that holds it"):
        Classify().resolve(Given(train=({"text": "a"},)), tokenizer, PLAIN)
    with pytest.raises(ValueError, match=r"there is a score and no label; task=regress learns scores$"):
        Classify().resolve(Given(train=({"text": "a", "score": 3.5},)), tokenizer, PLAIN)


def test_many_decimals_are_no_classes(tokenizer: Tokenizer) -> None:
    stars = tuple({"text": "a", "label": f"{i / 2}"} for i in range(10))
    assert len(Classify().resolve(Given(train=stars), tokenizer, PLAIN).classes) == 10
    scores = tuple({"text": "a", "label": f"{i / 7:.3f}"} for i in range(40))
    with pytest.raises(ValueError, match=r"40 numbers such as '0.000', which are hardly classes.* task=regress"):
        Classify().resolve(Given(train=scores), tokenizer, PLAIN)


def test_what_is_shown_names_the_class(tokenizer: Tokenizer) -> None:
    task = Classify(classes=("no", "yes"), segments=2)
    lines = dict(task.preview(batch(task, [LABELLED[1]], tokenizer), 0, tokenizer))
    assert lines["label"] == "yes" and "c" in lines["ids"] and set(lines) == {"ids", "token_types", "label"}


def test_a_file_says_where(tokenizer: Tokenizer, tmp_path: Any) -> None:
    (tmp_path / "t.csv").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "v.csv").write_text("text,label\na,x\nb,z\n")
    paths = {"path": tmp_path / "t.csv", "validation_path": tmp_path / "v.csv", "test_path": tmp_path / "v.csv"}
    source = Labelled(**{name: str(path) for name, path in paths.items()})
    task = Classify().resolve(source, tokenizer, PLAIN)
    with pytest.raises(ValueError, match=r"v.csv', line 3: the class 'z' is not in the training data"):
        next(stream(source, tokenizer, Batching(workers=0), seq2seq=False, task=task, split="test"))
    skipping = stream(
        source, tokenizer, Batching(workers=0), seq2seq=False, task=task.replace(on_error="skip"), split="test"
    )
    assert next(skipping).labels.tolist() == [0]  # type: ignore[union-attr]
    assert "1 of a class unseen in training" in str(skipping.report)
