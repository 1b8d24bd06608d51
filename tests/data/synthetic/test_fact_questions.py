"""Generated facts: an answer is where it is said to start, and is the only one."""

from __future__ import annotations

from qkv.data.synthetic.fact_questions import Facts


def test_answers_stand_at_their_starts() -> None:
    examples = [*Facts(train=300).examples("train")]
    for example in examples:
        (answer,), (start,) = example["answers"], example["starts"]
        assert example["context"][start : start + len(answer)] == answer
        assert example["text"] == f"{example['question']}\n{example['context']}"
    empty = sum(example["answers"] == ("",) for example in examples)
    assert 0.1 < empty / len(examples) < 0.3


def test_the_settings_bound_the_facts_and_the_unanswerable() -> None:
    for example in Facts(train=100, shortest=2, longest=4, unanswerable=0).examples("train"):
        assert 2 <= example["context"].count(".") <= 4 and example["answers"] != ("",)
        name = next(word for word in example["question"].replace("'s", "").rstrip("?").split() if word in NAMES)
        assert name in example["context"]


NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana")
