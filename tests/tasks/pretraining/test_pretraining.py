"""Masked language models, span corruption, denoising, prefixes: what the model is given of running text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Role
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import stream
from qkv.data.source import Source, Split, Table
from qkv.data.task import Task
from qkv.layers.embedding import Embedding
from qkv.tasks.masked_language_modeling.task import MaskedLanguageModel
from qkv.tokenizers.tokenizer import Tokenizer, train
from qkv.tokenizers.training.bpe import BPE
from qkv.tokenizers.training.wordpiece import WordPiece

WORDS = "red green blue old new big small cat dog bird tree house runs sees eats finds".split()  # noqa: SIM905


def prose(seed: int, sentences: int) -> str:
    random = np.random.default_rng(seed)
    return " ".join(" ".join(random.choice(WORDS, random.integers(3, 7))) + "." for _ in range(sentences))


class Prose(Source, kind="prose-test"):
    """Texts of some sentences; with `more`, one of a single sentence and one of a single token besides."""

    more: bool = False

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        texts = [prose(i, 3 + i % 9) for i in range(24)] + ["red cat.", "cat"] * self.more
        return [{"text": text} for text in texts]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    special = tuple(f"<extra_id_{i}>" for i in range(20))
    spec = BPE(vocab_size=420, bos="[CLS]", eos="[SEP]", pad="[PAD]", unk="[UNK]", special=special)
    return train(spec.with_roles(["mask"]), [prose(i, 6) for i in range(40)])


def opened(
    task: Task | dict[str, Any], tokenizer: Any, split: Split = "train", more: bool = False, **settings: Any
) -> Any:
    task = Task.from_dict(task) if isinstance(task, dict) else task
    source = Prose(more=more)
    task = task.resolve(source, tokenizer, Embedding(token_types=2))
    batching = Batching.from_dict({"context": 32, "tokens": 256, "workers": 0, **settings})
    return stream(source, tokenizer, batching, seq2seq=False, task=task, split=split, epochs=1)


def rows_of(batches: list[Batch], name: str = "ids") -> list[list[int]]:
    where = {"ids": "layout", "target": "target_layout", "labels": None}[name]
    found = []
    for batch in batches:
        value = batch.labels if name == "labels" else batch.inputs[name]
        layout = batch.inputs[where or ("target_layout" if "target" in batch.inputs else "layout")]
        assert value is not None
        found += [row[real].tolist() for row, real in zip(value, layout.valid.expand(value.shape), strict=True)]
    return found


# -- masked language models ---------------------------------------------------------------------------------------------


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


def test_training_goes_on_after_any_batch(tokenizer: Tokenizer) -> None:
    source, batching, task = Prose(), Batching(context=32, tokens=256, workers=0), MaskedLanguageModel()
    whole = list(stream(source, tokenizer, batching, seq2seq=False, task=task, epochs=2))
    later = stream(source, tokenizer, batching, seq2seq=False, task=task, epochs=2, position=whole[2].position)
    assert [b.inputs["ids"].tolist() for b in later] == [b.inputs["ids"].tolist() for b in whole[3:]]


def test_what_is_in_no_row_is_counted(tokenizer: Tokenizer) -> None:
    with opened(MaskedLanguageModel(), tokenizer, more=True) as batches:
        list(batches)
        assert batches.report.skipped == {
            "without the second sentence that task.next_sentence asks for (task.next_sentence=false trains without it)": 2
        }
    single = train(WordPiece(vocab_size=120, bos="[CLS]", eos="[SEP]", mask="[MASK]"), [prose(0, 90)])
    for kind in ({"kind": "masked-language-model", "next_sentence": False}, {"kind": "prefix-language-model"}):
        with opened(kind, single, more=True) as batches:
            list(batches)
            assert batches.report.skipped == {"with fewer than two tokens": 1}


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


# -- span corruption and denoising --------------------------------------------------------------------------------------


def test_spans_stand_behind_their_sentinels(tokenizer: Tokenizer) -> None:
    task = {"kind": "span-corruption", "sentinels": 20}
    batches = list(opened(task, tokenizer))
    marks = [tokenizer.id(f"<extra_id_{i}>") for i in range(20)]
    for source, target, labels in zip(*(rows_of(batches, n) for n in ("ids", "target", "labels")), strict=True):
        assert target[0] == tokenizer.bos_id and labels == [*target[1:], tokenizer.eos_id]
        assert source[-1] == tokenizer.eos_id and target[1] == marks[0] and marks[0] in source


def test_a_damaged_text_and_the_whole(tokenizer: Tokenizer) -> None:
    batches = list(opened({"kind": "denoising"}, tokenizer))
    shares = []
    for source, labels in zip(rows_of(batches), rows_of(batches, "labels"), strict=True):
        text = labels[:-1]
        kept = [token for token in source[:-1] if token != tokenizer.mask_id]
        assert not set(kept) - set(text) and len(kept) == len(text) - round(0.3 * len(text))
        shares.append(source.count(tokenizer.mask_id) / len(text))
    assert 0.05 < np.mean(shares) < 0.2


# -- prefixes -----------------------------------------------------------------------------------------------------------


def test_labels_are_behind_the_prefix(tokenizer: Tokenizer) -> None:
    batches = list(opened({"kind": "prefix-language-model"}, tokenizer))
    sizes = []
    for batch in batches:
        layout, ids, labels = batch.inputs["layout"], batch.inputs["ids"], batch.labels
        assert labels is not None and ids.shape[1] <= 32
        for row, roles, said, n in zip(ids, layout.roles, labels, layout.lengths, strict=True):
            size = int((roles & Role.PREFIX).ne(0).sum())
            assert (roles[:size] == Role.PREFIX).all() and row[0] == tokenizer.bos_id
            assert (said[: size - 1] == IGNORE).all() and (said[size - 1 : n] != IGNORE).all()
            assert said[size - 1 : n - 1].tolist() == row[size:n].tolist()
            sizes.append(size / n)
    assert np.std(sizes) > 0.15


# -- mistakes -----------------------------------------------------------------------------------------------------------


def test_a_tokenizer_without_what_the_task_needs_is_told() -> None:
    bare = train(BPE(vocab_size=300), [prose(0, 30)])
    for kind in ("masked-language-model", "denoising", "replaced-tokens"):
        with pytest.raises(ValueError, match="needs a tokenizer with a mask token"):
            opened({"kind": kind}, bare)
    with pytest.raises(ValueError, match=r"needs a tokenizer with 100 sentinels, and this one has no <extra_id_0>"):
        opened({"kind": "span-corruption"}, bare)


@pytest.mark.parametrize(
    ("task", "settings", "said"),
    [
        ({"kind": "masked-language-model"}, {"context": 5}, "batching.context is 5, and 3 tokens stand around"),
        ({"kind": "masked-language-model", "masked": 0.9, "swapped": 0.2}, {}, "give two that make 1 or less"),
        ({"kind": "masked-language-model", "rate": 0}, {}, "greater than 0"),
    ],
)
def test_mistakes_are_one_sentence(
    task: dict[str, Any], settings: dict[str, Any], said: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(ValueError, match=said):
        list(opened(task, tokenizer, **settings))


def test_pairs_are_no_running_text(tokenizer: Tokenizer) -> None:
    class Two(Source, kind="two-test"):
        def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
            return [{"source": "a cat", "target": "a dog"}] * 9

    with pytest.raises(ValueError, match="needs running text, which this source does not have"):
        list(stream(Two(), tokenizer, Batching(workers=0), seq2seq=False, task=MaskedLanguageModel()))
