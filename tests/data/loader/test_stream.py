from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from data_stand_in import Characters
from data_streams import SMALL, TOY, batches, read, same, valid
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv import build, preset
from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout
from qkv.data import Batching, JsonLines, Localise, Pairs, Source, stream, train_tokenizer
from qkv.data.batching.token_cache import TokenCache
from qkv.data.source import Counts, Split, Table
from qkv.data.tokenizers.training.words_chars_bytes import Char

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


def test_how_many_passes_over_the_data_are_done() -> None:
    """300 examples in pools of 64: five pools, the last of them smaller."""
    found = batches(None, epochs=2)
    passed = [batch.position["passed"] for batch in found]
    assert passed == sorted(set(passed)) and passed[-1] == 2.0 and 1.0 in passed
    for batch, done in zip(found, passed, strict=True):
        assert batch.position["epoch"] < done <= batch.position["epoch"] + 1
    first = [batch for batch in found if batch.position["epoch"] == 0]
    rows = 0
    for batch, done in zip(first, passed, strict=False):
        rows += batch.rows
        assert done == pytest.approx(rows / 300, abs=0.06)
    assert rows == 300


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


HELD = ("validation_", "test_")


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    """Files, which are remembered once they are read; some lines are no good, some too long, and none is held out."""
    sides = {"source": "a", "target": "b"}
    for path in sides.values():
        lines = [f"{path}{i} " + "xyz " * (i * 7 % 6) for i in range(150)] + ["", "z" * 40, "z" * 4000]
        (tmp_path / path).write_text("\n".join(lines) + "\n")
    given = {f"{split}{name}": str(tmp_path / path) for name, path in sides.items() for split in ("", *HELD)}
    return Pairs(**given)


READING = {
    "as it comes": {"workers": 0, "cache": 0},
    "remembered": {"workers": 0},
    "ahead": {},
    "both off": {"cache": 0},
}


@pytest.mark.parametrize("how", READING.values(), ids=READING)
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("made", [True, False], ids=["made anew", "files"])
def test_resuming_anywhere_continues_with_the_next_batch(
    shuffle: bool, made: bool, how: dict[str, Any], pairs: Pairs
) -> None:
    """Also past the first epoch, and from the last batch of a pool and of an epoch (contract bug 20)."""
    batching, source = SMALL.replace({"shuffle": shuffle, **how}), TOY if made else pairs
    whole = batches(70, source, batching)
    assert whole[-1].position["epoch"] >= 2
    plain = SMALL.replace({"shuffle": shuffle, **READING["as it comes"]})
    assert all(itertools.starmap(same, zip(whole, batches(70, source, plain), strict=True)))
    for i in range(0, 66, 3):
        position = json.loads(json.dumps(whole[i].position))
        resumed = batches(4, source, batching, position=position)
        assert all(itertools.starmap(same, zip(whole[i + 1 :], resumed, strict=False))), i


@pytest.mark.parametrize("budget", [0, 1])
def test_what_is_remembered_is_counted_as_what_is_read(
    pairs: Pairs, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs: dict[int, Counts] = {}
    update = Counts.update_epoch

    def recorded(self: Counts, epoch: Counts, pool: Counts) -> None:
        epochs[id(epoch)] = epoch
        update(self, epoch, pool)

    monkeypatch.setattr(Counts, "update_epoch", recorded)
    with stream(pairs, Characters(), SMALL.replace(cache=budget), seq2seq=True, epochs=3) as opened:
        list(opened)
    assert [epoch.read for epoch in epochs.values()] == [153] * 3
    assert [epoch.skipped for epoch in epochs.values()] == [{"with both sides empty": 1, "over-long": 2}] * 3
    assert opened.report.read == 153  # not once an epoch
    assert opened.report.skipped == {"with both sides empty": 1, "over-long": 2}
    assert opened.report.tokens == sum(epoch.tokens for epoch in epochs.values()) > 2 * opened.report.read


def test_files_are_tokenized_once(pairs: Pairs) -> None:
    for epochs, cache in ((3, 1), (1, 0)):
        tokenizer = Characters()
        batches(None, pairs, SMALL.replace(cache=cache, workers=0), tokenizer=tokenizer, epochs=epochs)
        once = tokenizer.texts_seen if cache else tokenizer.texts_seen == once
    assert once


def test_a_memory_that_is_full_changes_nothing(pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batches(40, pairs)
    for size in (100, 1500, 5000, 20_000):
        monkeypatch.setattr(
            "qkv.data.loader.pools.TokenCache", lambda entries, budget, size=size: TokenCache(entries, size)
        )
        assert all(itertools.starmap(same, zip(whole, batches(40, pairs), strict=True)))


# -- tokens by chance -----------------------------------------------------------------------------------------------


class Dropping(Characters):
    """Spells each text in capitals or not, by its seed."""

    dropout = 0.5

    def sample(self, texts: list[str], seeds: list[int]) -> list[list[int]]:
        return [[ord(c.upper() if seed % 2 else c) + 10 for c in text] for text, seed in zip(texts, seeds, strict=True)]


def test_tokens_by_chance_are_drawn_by_seed_epoch_and_example(pairs: Pairs) -> None:
    whole = batches(60, pairs, tokenizer=Dropping())
    assert all(itertools.starmap(same, zip(whole, batches(60, pairs, tokenizer=Dropping()), strict=True)))
    resumed = batches(20, pairs, tokenizer=Dropping(), position=whole[39].position)
    assert all(itertools.starmap(same, zip(whole[40:], resumed, strict=True)))
    epochs: dict[int, dict[str, tuple[str, str]]] = {}
    for batch in whole:
        for source, target in read(batch):
            epochs.setdefault(batch.position["epoch"], {})[source.lower()] = (source, target)
    common = epochs[0].keys() & epochs[1].keys()
    differ = [epochs[0][key] != epochs[1][key] for key in common]
    assert len(common) > 100 and any(differ) and not all(differ)
    sides = [(source.isupper(), target.isupper()) for source, target in epochs[0].values()]
    assert len(set(sides)) == 4  # each side by itself
    other = batches(1, pairs, tokenizer=Dropping(), seed=2)[0]
    assert sorted(read(whole[0])) != sorted(read(other))


def test_evaluation_is_never_by_chance(pairs: Pairs) -> None:
    for split in ("validation", "test"):
        held = batches(None, pairs, tokenizer=Dropping(), split=split)
        assert all(itertools.starmap(same, zip(held, batches(None, pairs, split=split), strict=True)))


# -- what is wrong --------------------------------------------------------------------------------------------------


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
    for source, noted in ((Few(texts_=("a", "bc")), True), (TOY, False)):
        with stream(source, Characters(), SMALL, seq2seq=True, epochs=3) as opened:
            list(opened)
        said = (
            "all training data make one batch (12 of 400 slots), so every step sees the same; lower tokens for smaller"
        )
        assert str(opened.report).count(said) == noted


def test_nothing_left_is_an_error_not_an_endless_loop() -> None:
    said = r"left to use: 1 example read; 1 skipped \(1 over-long\), 100% of all; raise max_length, which is 32, or set"
    with pytest.raises(ValueError, match=said):
        batches(1, source=Few(texts_=("a" * 99,)))
    with pytest.raises(ValueError, match="the train split holds no example"):
        batches(1, source=Few())


def test_limits_that_contradict_one_another() -> None:
    with pytest.raises(ValueError, match="batches of 100 tokens can't hold a pair with max_length 256"):
        batches(1, batching=Batching(tokens=100))
    with pytest.raises(ValueError, match="batches of 100 tokens can't hold a row of context 256"):
        batches(1, batching=Batching(tokens=100), seq2seq=False)
    with pytest.raises(ValueError, match=r"workers is a number of processes from 0, or 'auto', not -1"):
        Batching.from_dict({"workers": -1})
    with pytest.raises(ValueError, match="leave out packing or rows"):
        Batching.from_dict({"packing": True, "rows": "stream"})
    with pytest.raises(ValueError, match="max_length 64 doesn't fit the rows of context 32"):
        batches(1, batching=Batching(packing=True, max_length=64, context=32))


def test_bad_lines_are_reported(tmp_path: Path) -> None:
    good = [f"line {i}" for i in range(20)]
    (tmp_path / "a").write_text("\n".join(["", "w" * 500, *good, ""]))
    (tmp_path / "b").write_text("\n".join(["y", "y", *good, ""]))
    source = Pairs(source=str(tmp_path / "a"), target=str(tmp_path / "b"))
    with stream(source, Characters(), SMALL, seq2seq=True, epochs=1) as opened:
        list(opened)
        report = str(opened.report)
    assert report.startswith("18 examples read; 2 skipped (") and "1 with one side empty" in report
    assert "1 over-long" in report and "held out of the training data by hash: 2 for validation" in report


def test_packed_pairs_fill_rows_and_are_isolated_on_both_sides(pairs: Pairs) -> None:
    batching = SMALL.replace(packing=True, context=100, pool=512)
    with stream(pairs, Characters(), batching, seq2seq=True, epochs=1) as opened:
        found = list(opened)
        assert opened.report.fill > 0.8
    alone = sorted(pair for batch in batches(None, pairs, SMALL, epochs=1, seed=0) for pair in read(batch))
    assert sorted(pair for batch in found for pair in _unpacked(batch)) == alone
    assert any(not batch.inputs["layout"].one_segment for batch in found)


def _unpacked(batch: Batch) -> Iterator[tuple[str, str]]:
    inputs = batch.inputs
    for row in range(len(inputs["ids"])):
        texts = [_by_segment(inputs[ids][row], inputs[layout], row) for ids, layout in SIDES]
        yield from zip(*texts, strict=True)


SIDES = (("ids", "layout"), ("target", "target_layout"))


def _by_segment(ids: torch.Tensor, layout: Layout, row: int) -> list[str]:
    segments, positions = layout.segments[row], layout.positions[row, :, 0]  # type: ignore[index]
    parts = [segments == n for n in range(int(segments.max()) + 1)]
    assert all(positions[part].tolist() == list(range(int(part.sum()))) for part in parts)
    return [Characters().decode(ids[part].tolist()) for part in parts]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.text("abc", max_size=6), st.text("abc", max_size=6)), min_size=1, max_size=8))
def test_packed_pairs_cost_a_model_what_they_cost_it_alone(texts: list[tuple[str, str]]) -> None:
    model = build(
        preset("transformer", vocab_size=128, d_model=16, n_layers=1, n_heads=2, d_ff=32, dropout=0.0), seed=0
    )
    model.eval().double()
    source = Given(pairs=tuple(texts))
    losses = []
    for batching in (Batching(tokens=64, max_length=16, context=32, packing=True), Batching(tokens=32, max_length=8)):
        found = batches(None, source, batching, split="test")
        with torch.no_grad():
            losses.append(sum(float(model(**batch.inputs, labels=batch.labels).loss) for batch in found))
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


class Given(Source, kind="given-pairs"):
    pairs: tuple[tuple[str, str], ...]

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [{"source": a, "target": b} for a, b in self.pairs]


# -- a decoder alone, and pools -------------------------------------------------------------------------------------


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


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 200), st.integers(18, 200), st.booleans())
def test_any_pool_and_budget_hold_every_example_once(pool: int, tokens: int, shuffle: bool) -> None:
    batching = Batching(pool=pool, tokens=tokens * 2, max_length=18, shuffle=shuffle)
    toy = TOY.replace(train=60)
    found = [pair for batch in batches(None, source=toy, batching=batching, epochs=1) for pair in read(batch)]
    assert sorted(found) == sorted((e["source"], e["target"]) for e in toy.examples(seed=1, epoch=0))


# -- workers --------------------------------------------------------------------------------------------------------


def test_workers_give_the_same_batches_and_leave(pairs: Pairs) -> None:
    alone = batches(40, pairs)
    of_other_tests = set(_children(os.getpid()))  # such as the rank pools, which live as long as the session
    with stream(pairs, Characters(), SMALL.replace(workers=2), seq2seq=True, seed=1) as opened:
        shared = list(itertools.islice(opened, 40))
        children = set(_children(os.getpid())) - of_other_tests
        assert len(children) >= 2
    assert all(itertools.starmap(same, zip(alone, shared, strict=True)))
    _wait_until(lambda: not any(map(_is_worker, children)))


@pytest.mark.parametrize("workers", ["auto", 1])
def test_an_error_in_a_worker_is_the_users_error(workers: Any) -> None:
    with pytest.raises(ValueError, match="no example of the train split is left to use"):
        batches(1, source=Few(texts_=("a" * 99,)), batching=SMALL.replace(workers=workers))


def test_the_thread_that_reads_ahead_is_gone_when_the_stream_is_closed_or_forgotten() -> None:
    def reading() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("qkv-data")]

    before = reading()
    with stream(TOY, Characters(), SMALL, seq2seq=True) as opened:
        next(opened)
        assert len(reading()) == len(before) + 1
    assert reading() == before
    next(stream(TOY, Characters(), SMALL, seq2seq=True))
    assert reading() == before


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
@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_no_worker_outlives_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS.format(here=str(Path(__file__).parents[2] / "helpers")))
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
