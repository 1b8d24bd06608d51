from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from data_stand_in import Characters
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout
from qkv.data import Batching, JsonLines, Localise, Pairs, Reverse, Source, Text, stream, train_tokenizer
from qkv.data.pools import cut_rows
from qkv.data.rows import Row
from qkv.data.sources import Split, Table
from qkv.data.tokenizer_specs import Char

TOY = Reverse(train=300, validation=40, test=40, longest=9)
SMALL = Batching(tokens=400, pool=64, max_length=32, context=32)


def batches(n: int | None, source: Source = TOY, batching: Batching = SMALL, **options: Any) -> list[Batch]:
    options = {"seq2seq": True, "seed": 1, **options}
    with stream(source, options.pop("tokenizer", Characters()), batching, **options) as opened:
        return list(itertools.islice(opened, n))


def same(a: Batch, b: Batch) -> bool:
    names = [name for name in a.inputs if "layout" not in name]
    return (
        all(torch.equal(a.inputs[name], b.inputs[name]) for name in names)
        and all(torch.equal(a.inputs[n].positions, b.inputs[n].positions) for n in a.inputs if n not in names)
        and torch.equal(a.labels, b.labels)  # type: ignore[arg-type]
        and (a.counts, a.tokens, a.slots, a.position, a.texts) == (b.counts, b.tokens, b.slots, b.position, b.texts)
    )


def read(batch: Batch) -> list[tuple[str, str]]:
    """The pairs in a sequence-to-sequence batch, through the layouts."""
    inputs = batch.inputs
    return list(
        zip(real(inputs["ids"], inputs["layout"]), real(inputs["target"], inputs["target_layout"]), strict=True)
    )


def real(ids: torch.Tensor, layout: Layout) -> list[str]:
    """The text in the real tokens of each row."""
    return [Characters().decode(row[v].tolist()) for row, v in zip(ids, valid(layout, ids), strict=True)]


def valid(layout: Layout, ids: torch.Tensor) -> torch.Tensor:
    return layout.valid.expand_as(ids)  # a layout of equal rows has one row for all


# -- pairs ----------------------------------------------------------------------------------------------------------


def test_an_epoch_holds_every_example_once() -> None:
    found = [pair for batch in batches(None, epochs=1) for pair in read(batch)]
    assert sorted(found) == sorted((e["source"], e["target"]) for e in TOY.examples(seed=1, epoch=0))


def test_what_a_batch_says_of_itself() -> None:
    for batch in batches(30):
        assert batch.labels is not None
        ids, target = batch.inputs["ids"], batch.inputs["target"]
        assert batch.slots == ids.numel() + target.numel() <= SMALL.tokens
        assert batch.tokens == sum(batch.inputs["layout"].lengths) + sum(batch.inputs["target_layout"].lengths)
        assert batch.counts == {"loss": int((batch.labels != IGNORE).sum())}
        assert torch.equal(batch.labels != IGNORE, valid(batch.inputs["target_layout"], target))
        assert torch.equal(batch.labels[:, :-1][target[:, 1:] > 2], target[:, 1:][target[:, 1:] > 2])  # shifted once
        assert bool((target[:, 0] == 1).all()) and int((target == 1).sum()) == len(target)  # one bos each
        assert json.loads(json.dumps(batch.position)) == batch.position


def test_lengths_are_sorted_so_little_is_padded() -> None:
    with stream(TOY, Characters(), SMALL.replace(pool=300), seq2seq=True, epochs=1) as opened:
        list(opened)
        assert opened.report.read == 300
        assert opened.report.fill > 0.9


def test_padding_with_the_end_token_does_not_mute_it() -> None:
    for batch in batches(10, tokenizer=Characters(pad_is_eos=True)):
        assert batch.labels is not None
        assert bool(((batch.labels == 2).sum(1) == 1).all())
        assert batch.counts["loss"] == sum(batch.inputs["target_layout"].lengths)


def test_epochs_differ_and_repeat_by_seed() -> None:
    per_epoch = len(batches(None, epochs=1))
    two = batches(2 * per_epoch)
    assert [b.position["epoch"] for b in two] == [0] * per_epoch + [1] * per_epoch
    assert sorted(map(read, two[:per_epoch])) != sorted(map(read, two[per_epoch:]))
    assert all(itertools.starmap(same, zip(two, batches(2 * per_epoch), strict=True)))
    assert sorted(map(read, two)) != sorted(map(read, batches(2 * per_epoch, seed=2)))


@pytest.mark.parametrize("shuffle", [True, False])
def test_resuming_anywhere_goes_on_with_the_next_batch(shuffle: bool) -> None:
    """Also past the first epoch, and from the last batch of a pool and of an epoch (contract bug 20)."""
    batching = SMALL.replace(shuffle=shuffle)
    whole = batches(70, batching=batching)
    assert whole[-1].position["epoch"] >= 2
    for i in range(0, 66, 3):
        position = json.loads(json.dumps(whole[i].position))
        resumed = batches(4, batching=batching, position=position)
        assert all(itertools.starmap(same, zip(whole[i + 1 :], resumed, strict=False))), i


def test_a_position_of_other_data_is_refused() -> None:
    position = batches(3)[-1].position
    with pytest.raises(ValueError, match="held 300 examples when this position was saved and hold 299 now"):
        batches(1, source=TOY.replace(train=299), position=position)


def test_evaluation_is_one_pass_in_a_stable_order_with_its_texts() -> None:
    first = batches(None, split="validation", seed=1)
    again = batches(None, split="validation", seed=2)
    assert all(itertools.starmap(same, zip(first, again, strict=True)))
    assert sum(len(batch.texts) for batch in first) == 40
    for batch in first:
        assert [(e["source"], e["target"]) for e in batch.texts] == read(batch)
    assert not batches(1)[0].texts


class Few(Source, kind="few"):
    texts_: tuple[str, ...] = ()

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [{"source": text, "target": text} for text in self.texts_]


def test_fewer_examples_than_a_batch() -> None:
    found = batches(3, source=Few(texts_=("a", "bc")))
    assert [sorted(read(batch)) for batch in found] == [[("a", "a"), ("bc", "bc")]] * 3


def test_nothing_left_is_an_error_not_an_endless_loop() -> None:
    with pytest.raises(ValueError, match=r"no example of the train split is left to use: .*1 skipped \(1 over-long\)"):
        batches(1, source=Few(texts_=("a" * 99,)))
    with pytest.raises(ValueError, match="the train split holds no example"):
        batches(1, source=Few())


def test_limits_that_contradict_one_another() -> None:
    with pytest.raises(ValueError, match="batches of 100 tokens can't hold a pair with max_length 256"):
        batches(1, batching=Batching(tokens=100))
    with pytest.raises(ValueError, match="batches of 100 tokens can't hold a row of context 256"):
        batches(1, batching=Batching(tokens=100), seq2seq=False)
    with pytest.raises(ValueError, match=r"workers: .*not -1"):
        Batching.from_dict({"workers": -1})


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=40), st.integers(18, 60), st.integers(1, 9))
def test_cut_rows_keep_the_budget_and_are_full(sizes: list[tuple[int, int]], tokens: int, most: int) -> None:
    rows = [Row([0] * n, [0] * n, [0] * m) for n, m in sizes]
    groups = cut_rows(rows, tokens, most)
    assert [row for group in groups for row in group] == rows

    def slots(group: list[Row]) -> int:
        return len(group) * (max(len(r.inputs) for r in group) + max(len(r.source or ()) for r in group))

    for group, following in itertools.zip_longest(groups, groups[1:]):
        assert slots(group) <= tokens and len(group) <= most
        assert following is None or slots([*group, following[0]]) > tokens or len(group) == most


def test_bad_lines_are_reported(tmp_path: Path) -> None:
    good = [f"line {i}" for i in range(20)]
    (tmp_path / "a").write_text("\n".join(["", "x" * 500, *good, ""]))
    (tmp_path / "b").write_text("\n".join(["y", "y", *good, ""]))
    source = Pairs(source=str(tmp_path / "a"), target=str(tmp_path / "b"))
    with stream(source, Characters(), SMALL, seq2seq=True, epochs=1) as opened:
        list(opened)
        report = str(opened.report)
    assert report.startswith("20 examples read; 2 skipped (") and "1 with one side empty" in report
    assert "1 over-long" in report and "held out of the training file by hash: 1 for validation" in report


# -- text -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path: Path) -> Text:
    (tmp_path / "t.txt").write_text("".join(f"this is line {i} of the text\n" for i in range(200)))
    path = str(tmp_path / "t.txt")
    return Text(path=path, validation_path=path, test_path=path, documents="line")


def test_contiguous_text(corpus: Text) -> None:
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


@pytest.mark.parametrize("packing", [False, True])
def test_text_resumes(corpus: Text, packing: bool) -> None:
    options: dict[str, Any] = {"source": corpus, "batching": SMALL.replace(packing=packing), "seq2seq": False}
    whole = batches(60, **options)
    assert whole[-1].position["epoch"] >= 1
    for i in range(0, 55, 7):
        resumed = batches(4, position=whole[i].position, **options)
        assert all(itertools.starmap(same, zip(whole[i + 1 :], resumed, strict=False)))


@pytest.mark.parametrize("packing", [False, True])
def test_a_decoder_alone_learns_the_answers(tmp_path: Path, packing: bool) -> None:
    path = tmp_path / "qa.jsonl"
    path.write_text("".join(json.dumps({"q": f"{i}+1", "a": str(i + 1)}) + "\n" for i in range(50)))
    source = JsonLines(path=str(path), prompt="q", answer="a", validation_path=str(path), test_path=str(path))
    found = batches(None, source=source, batching=SMALL.replace(packing=packing), seq2seq=False, epochs=1)
    labels = sorted(Characters().decode([i for i in row if i != IGNORE]) for b in found for row in b.labels.tolist())  # type: ignore[union-attr]
    if packing:
        assert sum(len(text) for text in labels) == sum(len(str(i + 1)) for i in range(50))
    else:
        assert labels == sorted(str(i + 1) for i in range(50))


def test_running_text_is_refused_by_an_encoder_decoder(corpus: Text) -> None:
    with pytest.raises(ValueError, match="the text source gives running text; an encoder-decoder needs pairs"):
        batches(1, source=corpus)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 200), st.integers(18, 200), st.booleans())
def test_any_pool_and_budget_hold_every_example_once(pool: int, tokens: int, shuffle: bool) -> None:
    batching = Batching(pool=pool, tokens=tokens * 2, max_length=18, shuffle=shuffle)
    toy = TOY.replace(train=60)
    found = [pair for batch in batches(None, source=toy, batching=batching, epochs=1) for pair in read(batch)]
    assert sorted(found) == sorted((e["source"], e["target"]) for e in toy.examples(seed=1, epoch=0))


# -- workers --------------------------------------------------------------------------------------------------------


def test_workers_give_the_same_batches_and_leave() -> None:
    alone = batches(40)
    with stream(TOY, Characters(), SMALL.replace(workers=2), seq2seq=True, seed=1) as opened:
        shared = list(itertools.islice(opened, 40))
        children = _children(os.getpid())
        assert len(children) >= 2
    assert all(itertools.starmap(same, zip(alone, shared, strict=True)))
    _wait_until(lambda: not any(map(_is_worker, children)))


def test_an_error_in_a_worker_is_the_users_error() -> None:
    with pytest.raises(ValueError, match="no example of the train split is left to use"):
        batches(1, source=Few(texts_=("a" * 99,)), batching=SMALL.replace(workers=1))


ENDLESS = """
import itertools, sys, os
sys.path.insert(0, {here!r})
from data_stand_in import Characters
from qkv.data import Batching, Reverse, stream
if __name__ == "__main__":
    opened = stream(Reverse(), Characters(), Batching(workers=1, pool=64), seq2seq=True)
    next(opened)
    print("running", flush=True)
    for _ in opened:
        pass
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to list processes")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS.format(here=str(Path(__file__).parent)))
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None and parent.stdout.readline() == "running\n"
    children = _children(parent.pid)
    assert children
    parent.send_signal(how)
    parent.wait(30)
    _wait_until(lambda: not any(map(_is_worker, children)))


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and _is_worker(int(stat.parent.name)):
            found.append(int(stat.parent.name))
    return found


def _is_worker(pid: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _wait_until(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "worker processes are still there"
        time.sleep(0.05)


def test_a_trained_tokenizer_serves() -> None:
    tokenizer = train_tokenizer(Char(), TOY.texts())
    for batch in batches(None, tokenizer=tokenizer, epochs=1):
        assert batch.labels is not None
        for labels, target in zip(batch.labels.tolist(), batch.inputs["target"].tolist(), strict=True):
            n = labels.index(tokenizer.eos_id)
            assert target[0] == tokenizer.bos_id and target[1 : n + 1] == labels[:n]


def test_localise_streams() -> None:
    source = Localise(languages=("de",), train=20_000)
    batch = batches(1, source=source, batching=Batching(tokens=4096, max_length=80, pool=2048))[0]
    assert batch.slots <= 4096 and batch.tokens / batch.slots > 0.7
