"""Masked language modeling: masked tokens are the labels, sentence pairs have types and targets, rows are packed."""

from __future__ import annotations

import numpy as np
import pytest
from pretraining_texts import Prose, opened, prose, rows_of

from qkv.core.batch import IGNORE
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.source import Source, Split, Table
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.runs.tasks.masked_language_modeling.task import MaskedLanguageModel


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    special = tuple(f"<extra_id_{i}>" for i in range(20))
    spec = BPE(vocab_size=420, bos="[CLS]", eos="[SEP]", pad="[PAD]", unk="[UNK]", special=special)
    return train(spec.with_roles(["mask"]), [prose(i, 6) for i in range(40)])


@pytest.mark.parametrize("units", ["tokens", "words", "spans"])
@pytest.mark.parametrize("next_sentence", [True, False])
def test_hidden_tokens_are_the_labels_and_frames_stay(units: str, next_sentence: bool, tokenizer: Tokenizer) -> None:
    task = {"kind": "masked-language-model", "units": units, "next_sentence": next_sentence}
    batches = list(opened(task, tokenizer))
    frames = {tokenizer.cls_id, tokenizer.sep_id}
    total = picked = 0
    for ids, labels in zip(rows_of(batches), rows_of(batches, "labels"), strict=True):
        whole = [i if label == IGNORE else label for i, label in zip(ids, labels, strict=True)]
        assert whole[0] == tokenizer.cls_id and whole[-1] == tokenizer.sep_id and len(whole) <= 32
        assert whole.count(tokenizer.sep_id) == 1 + next_sentence
        assert not frames & {label for label in labels if label != IGNORE}
        assert any(label != IGNORE for label in labels)  # no row without something to say
        total += len(ids) - 2 - next_sentence
        picked += sum(label != IGNORE for label in labels)
    assert abs(picked / total - 0.15) < (0.07 if units == "spans" else 0.03)  # rows as short as these hold one span
    assert sum(batch.counts["loss"] for batch in batches) == picked


def test_second_sentences_have_their_type_and_their_target(tokenizer: Tokenizer) -> None:
    batches = list(opened(MaskedLanguageModel(), tokenizer))
    follows = []
    for batch in batches:
        types, ids = batch.inputs["token_types"], batch.inputs["ids"]
        assert batch.counts["next_sentence"] == len(ids) == len(batch.targets["next_sentence"])
        for row, kinds in zip(ids, types, strict=True):
            first = row.tolist().index(tokenizer.sep_id)
            assert kinds[: first + 1].sum() == 0 and kinds[first + 1 :][row[first + 1 :] != tokenizer.pad_id].all()
        follows += batch.targets["next_sentence"].tolist()
    assert 0.2 < np.mean(follows) < 0.8


def test_epochs_differ_and_evaluation_is_always_the_same(tokenizer: Tokenizer) -> None:
    task = MaskedLanguageModel()
    first, again = (rows_of(list(opened(task, tokenizer, "validation"))) for _ in range(2))
    assert first == again
    source, batching = Prose(), Batching(context=32, tokens=4096, workers=0)
    with stream(source, tokenizer, batching, seq2seq=False, task=task, epochs=2) as batches:
        one, two = batches
    assert sorted(rows_of([one])) != sorted(rows_of([two]))


def test_training_continues_after_any_batch(tokenizer: Tokenizer) -> None:
    source, batching, task = Prose(), Batching(context=32, tokens=256, workers=0), MaskedLanguageModel()
    whole = list(stream(source, tokenizer, batching, seq2seq=False, task=task, epochs=2))
    later = stream(source, tokenizer, batching, seq2seq=False, task=task, epochs=2, position=whole[2].position)
    assert [b.inputs["ids"].tolist() for b in later] == [b.inputs["ids"].tolist() for b in whole[3:]]


def test_documents_are_packed_without_seeing_one_another(tokenizer: Tokenizer) -> None:
    task = {"kind": "masked-language-model", "next_sentence": False}
    batches = list(opened(task, tokenizer, packing=True, context=64))
    assert any(not batch.inputs["layout"].one_segment for batch in batches)
    assert all((batch.labels != IGNORE).any() for batch in batches if batch.labels is not None)
    with pytest.raises(ValueError, match=r"packing is for task\.next_sentence=false"):
        list(opened(MaskedLanguageModel(), tokenizer, packing=True))


def test_show_says_what_was_hidden(tokenizer: Tokenizer) -> None:
    (batch, *_) = opened(MaskedLanguageModel(), tokenizer)
    lines = dict(MaskedLanguageModel().preview(batch, 0, tokenizer))
    assert lines["read"].startswith("[CLS] ") and "[MASK]{" in "".join(
        dict(MaskedLanguageModel().preview(batch, row, tokenizer))["read"] for row in range(4)
    )
    assert lines["second sentence"] in ("follows the first", "another text's")


def test_pairs_are_no_running_text(tokenizer: Tokenizer) -> None:
    class Two(Source, kind="two-test"):
        def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
            return [{"source": "a cat", "target": "a dog"}] * 9

    with pytest.raises(ValueError, match="needs running text, which this source does not have"):
        list(stream(Two(), tokenizer, Batching(workers=0), seq2seq=False, task=MaskedLanguageModel()))
