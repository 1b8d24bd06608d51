"""Streams of running text: windows, documents that are packed, epochs and resuming."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from data_stand_in import Characters
from data_streams import SMALL, batches, real, same, valid

from qkv.core.batch import IGNORE
from qkv.data import Batching, Text, stream


@pytest.fixture
def corpus(tmp_path: Path) -> Text:
    (tmp_path / "t.txt").write_text("".join(f"this is line {i} of the text\n" for i in range(200)))
    path = str(tmp_path / "t.txt")
    return Text(path=path, validation_path=path, test_path=path, documents="line")


def test_running_text_has_the_next_tokens_as_labels(corpus: Text) -> None:
    for batch in batches(None, source=corpus, seq2seq=False, epochs=1):
        assert batch.labels is not None and set(batch.inputs) == {"ids", "layout"}
        ids = batch.inputs["ids"]
        assert ids.shape[1] <= 32 and batch.slots == ids.numel() <= SMALL.tokens
        follows = (batch.labels[:, :-1] != IGNORE) & valid(batch.inputs["layout"], ids)[:, 1:]
        assert torch.equal(batch.labels[:, :-1][follows], ids[:, 1:][follows])
        real_end = (ids == 2) & valid(batch.inputs["layout"], ids)
        assert bool((batch.labels[real_end] == IGNORE).all())  # nothing follows an end


def test_evaluation_of_text_is_the_text(corpus: Text) -> None:
    found = batches(None, source=corpus, seq2seq=False, split="validation")
    whole = "".join(text for b in found for text in real(b.inputs["ids"], b.inputs["layout"]))
    assert whole == "".join(corpus.texts("validation"))


def test_rows_of_text_differ_between_epochs(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("abcdefghij" * 100)
    path = str(tmp_path / "t.txt")
    source = Text(path=path, validation_path=path, test_path=path)

    def rows(epoch: int) -> set[str]:
        found = batches(None, source=source, seq2seq=False, position={"epoch": epoch}, epochs=epoch + 1)
        return {Characters().decode(row.tolist()) for batch in found for row in batch.inputs["ids"]}

    assert rows(0) != rows(1)


def test_packed_documents_are_isolated(corpus: Text) -> None:
    batching = SMALL.replace(packing=True, context=100)
    with stream(corpus, Characters(), batching, seq2seq=False, epochs=1) as opened:
        for batch in opened:
            assert batch.labels is not None
            layout, ids = batch.inputs["layout"], batch.inputs["ids"]
            starts = layout.positions[..., 0] == 0
            assert torch.equal(starts, ids == 1)  # positions begin again at every bos
            assert layout.segments is not None and not layout.one_segment
            ends = (layout.segments[:, :-1] != layout.segments[:, 1:]) & layout.valid[:, :-1]
            assert bool((batch.labels[:, :-1][ends] == 2).all())  # the last label of a document is its own end
            assert torch.equal(batch.labels != IGNORE, valid(layout, ids))
        assert opened.report.fill > 0.75


@pytest.mark.parametrize("how", [{}, {"packing": True}, {"rows": "stream"}], ids=["running", "packed", "stream"])
@pytest.mark.parametrize("pool", [None, 40])
def test_text_resumes(corpus: Text, how: dict[str, Any], pool: int | None) -> None:
    batching = SMALL.replace({"pool": pool, **how})
    options: dict[str, Any] = {"source": corpus, "batching": batching, "seq2seq": False}
    whole = batches(60, **options)
    assert whole[-1].position["epoch"] >= 1
    for i in range(0, 55, 7):
        resumed = batches(4, position=whole[i].position, **options)
        assert all(itertools.starmap(same, zip(whole[i + 1 :], resumed, strict=False)))


def test_a_stream_is_cut_into_full_windows_of_the_text_in_its_order(tmp_path: Path) -> None:
    text = "".join(f"{i} " for i in range(3000))
    (tmp_path / "t.txt").write_text(text)
    source = Text(path=str(tmp_path / "t.txt"), shares=(0.9, 0.1))
    batching, plain = Batching(tokens=12 * 64, context=64, rows="stream"), Characters(bos=False, eos=False)
    rows: dict[int, list[str]] = {}
    for batch in batches(40, source, batching, seq2seq=False, tokenizer=plain):
        assert batch.labels is not None and batch.labels.shape[1] == 64 and batch.inputs["layout"].one_segment
        for inputs, labels in zip(batch.inputs["ids"], batch.labels, strict=True):
            row = Characters().decode([*inputs.tolist(), int(labels[-1])])
            assert row in text and torch.equal(inputs[1:], labels[:-1])
            rows.setdefault(batch.position["epoch"], []).append(row)
    assert len(rows) > 1 and rows[0] != sorted(rows[0], key=text.index)
    for epoch in list(rows)[:-1]:  # in each epoch, windows that lie one behind the other
        places = sorted(text.index(row) for row in rows[epoch])
        assert {b - a for a, b in itertools.pairwise(places)} == {64}
    assert sorted(rows[0]) != sorted(rows[1])
    held = batches(None, source, batching, seq2seq=False, tokenizer=plain, split="validation")
    assert sum(batch.counts["loss"] for batch in held) == len(text) - int(len(text) * 0.9) - 1


def test_pools_of_a_stream_are_shuffled_not_their_text(corpus: Text) -> None:
    batching = SMALL.replace(rows="stream", pool=20)
    found = batches(None, source=corpus, batching=batching, seq2seq=False, epochs=1)
    numbers = [
        int(re.findall(r"line (\d+)", real(b.inputs["ids"], b.inputs["layout"])[0] + "line 0")[0]) for b in found
    ]
    first = [n // 20 for n, b in zip(numbers, found, strict=True) if b.position["batch"] == 1]
    assert len(first) == 10 and first != sorted(first)


def test_running_text_is_refused_by_an_encoder_decoder(corpus: Text) -> None:
    with pytest.raises(ValueError, match="the text source gives running text; an encoder-decoder needs pairs"):
        batches(1, source=corpus)
