"""Answers as spans: windows over long contexts, what stands for no answer, the best span over windows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.core.layout import Role
from qkv.data import train_tokenizer
from qkv.data.source import Skipped
from qkv.data.synthetic.fact_questions import Facts
from qkv.data.task import Item, RandomContext
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.nn.layers.embedding import Embedding
from qkv.runs.tasks.question_answering.task import Answer

WORDS = [f"{a}{b}" for a in ("lo", "ka", "ti", "ne") for b in ("ra", "mu", "s", "x")]
TOKENIZER = train_tokenizer(TokenizerSpec.from_dict({"kind": "bpe", "vocab_size": 280}), [" ".join(WORDS)] * 3)


def asked(words: list[str], answer: tuple[int, int] | None, question: str = "who is lora") -> dict[str, Any]:
    context = " ".join(words)
    if answer is None:
        said, start = "", 0
    else:
        start = len(" ".join(words[: answer[0]])) + bool(answer[0])
        said = " ".join(words[answer[0] : answer[1]])
    return {
        "text": f"{question}\n{context}", "question": question, "context": context, "answers": (said,), "starts": (start,)
    }  # fmt: skip


def windows(task: Answer, one: dict[str, Any], training: bool = False) -> list[Item]:
    made = task.items([one], TOKENIZER, RandomContext(np.random.default_rng(0), training))
    assert all(isinstance(item, Item) for item in made)
    return made  # type: ignore[return-value]


def perfect(item: Item) -> torch.Tensor:
    scores = torch.zeros(len(item.arrays["ids"]), 2)
    scores[item.labels[0], 0] = scores[item.labels[1], 1] = 9.0
    return scores


@given(
    words=st.lists(st.sampled_from(WORDS), min_size=3, max_size=50),
    place=st.integers(0, 99),
    size=st.integers(1, 3),
    longest=st.integers(40, 90),
)
@settings(max_examples=60, deadline=None)
def test_perfect_scores_give_the_answer_back_from_any_window(
    words: list[str], place: int, size: int, longest: int
) -> None:
    first = place % (len(words) - size + 1)
    one = asked(words, (first, first + size))
    task = Answer(longest=longest, overlap=18, unanswerable=False)
    made = windows(task, one)
    assert all(len(item.arrays["ids"]) <= longest for item in made)
    assert any(item.labels.any() for item in made)  # an answer as short as the overlap is whole in one of them
    metric = task.metric(TOKENIZER)
    for item in made:
        batch = task.collate([item], 0).batch({})
        assert batch.counts == {"loss": 2}
        metric.update(perfect(item)[None], batch)
    assert metric.compute()["exact"].value == 1.0
    assert metric.samples(1)[0]["output"] == one["answers"][0]


def test_windows_cover_the_context_and_have_the_question() -> None:
    one = asked(WORDS * 4, (60, 61))
    made = windows(Answer(longest=64, overlap=16), one)
    spans = [span for item in made for span in item.example["spans"]]
    assert len(made) > 2 and {end for _, end in spans} >= {len(one["context"])}
    question = TOKENIZER.encode(one["question"])
    for item, following in pairwise(made):
        assert item.arrays["ids"][1 : 1 + len(question)].tolist() == question
        assert item.example["spans"][-16:] == following.example["spans"][:16]
        assert set(item.arrays["token_types"].tolist()) == {0, 1}
    assert sum(bool(item.labels.any()) for item in made) in (1, 2)


def test_no_answer_is_said_by_the_first_token() -> None:
    task = Answer(longest=64, overlap=16, unanswerable=True)
    one = asked(WORDS, None)
    (item,) = windows(task, one)
    assert item.labels.tolist() == [0, 0]
    batch = task.collate([item], 0).batch({})
    metric = task.metric(TOKENIZER)
    metric.update(perfect(item)[None], batch)
    assert {name: one.value for name, one in metric.compute().items()} == {"exact": 1.0, "token_f1": 1.0}
    assert metric.samples(1)[0]["output"] == "(no answer)"
    always = task.replace(unanswerable=False).metric(TOKENIZER)
    always.update(perfect(item)[None], batch)
    assert always.compute()["exact"].value == 0.0
    cautious = task.replace(margin=99.0).metric(TOKENIZER)
    cautious.update(perfect(item)[None], batch)
    assert cautious.compute()["exact"].value == 0.0


def test_made_facts_can_be_answered_from_their_text() -> None:
    source = Facts(train=200, validation=20, test=50)
    task = Answer().resolve(source, TOKENIZER, Embedding())
    assert task.unanswerable is True
    for one in source.examples("test"):
        (answer,), (start,) = one["answers"], one["starts"]
        assert one["context"][start:].startswith(answer)
        if answer:
            who = next(word for word in one["question"].replace("'s", "").rstrip("?").split() if word in one["context"])
            assert who in one["context"]
    assert 0.1 < np.mean([one["answers"] == ("",) for one in source.examples("train")]) < 0.3


def test_what_can_not_be_read_is_told_or_skipped() -> None:
    with pytest.raises(ValueError, match="overlap by less than half"):
        Answer(longest=32, overlap=16)
    (skipped,) = Answer(longest=16, overlap=0).items(
        [asked(WORDS, (0, 1), question=" ".join(WORDS))], TOKENIZER, RandomContext(np.random.default_rng(0), True)
    )
    assert skipped == Skipped("with a question that fills the row")
    from qkv.data import Reverse

    with pytest.raises(ValueError, match="gives no questions"):
        Answer().resolve(Reverse(), TOKENIZER, Embedding())


def test_the_question_sees_all_where_the_model_has_such_tokens() -> None:
    task = Answer(longest=80, overlap=4).with_global_tokens()
    items = [item for n in (3, 14) for item in windows(task, asked(WORDS[:n], (1, 2), "who is " + "lora " * n))]
    layout = task.collate(items, 0).batch({}).inputs["layout"]
    assert layout.roles is not None and len({item.example["asked"] for item in items}) > 1
    for item, roles in zip(items, layout.roles, strict=True):
        parting = item.example["at"] - 1  # one token stands before the context
        assert (roles == Role.GLOBAL).nonzero().flatten().tolist() == list(range(parting))
    assert task.collate(items, 0).placed["ids"].layout(99).n_global == max(item.example["asked"] for item in items)
    assert Answer(global_tokens="none").with_global_tokens().global_tokens == "none"
