from __future__ import annotations

import sys
from collections.abc import Iterator

from data_stand_in import Characters
from data_streams import SMALL, batches, same
from hypothesis import given
from hypothesis import strategies as st

from qkv.data import Source, stream
from qkv.data.batching.settings import Batching
from qkv.data.loader.stream import count
from qkv.data.source import Example, Skipped, Split, Table
from qkv.data.tables import StreamTable


def entries(n: int) -> Iterator[Example | Skipped]:
    return iter([{"source": f"s{i}", "target": f"t{i}"} for i in range(n)])


@given(st.integers(0, 9), st.lists(st.integers(0, 12), max_size=20))
def test_any_entry_by_its_number(n: int, asked: list[int]) -> None:
    flow, whole = StreamTable(lambda: entries(n)), list(entries(n))
    for i in asked:
        assert flow[i] == (whole[i] if i < n else None)
        assert len(flow) in (n, sys.maxsize)
    assert flow[n] is None and len(flow) == n


def test_the_end_is_known_with_the_last_entry() -> None:
    flow = StreamTable(lambda: entries(3))
    flow[1]
    assert len(flow) == sys.maxsize
    flow[2]
    assert len(flow) == 3


class Coming(Source, kind="coming"):
    size: int = 150

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return StreamTable(lambda: entries(self.size))


def test_a_stream_reads_it_in_epochs_and_resumes() -> None:
    for size in (150, 128, 5):  # also a number of whole pools, and less than one
        source = Coming(size=size)
        with stream(source, Characters(), SMALL, seq2seq=True, epochs=2) as opened:
            assert sum(len(batch.labels) for batch in opened) == 2 * size  # type: ignore[arg-type]
            assert opened.report.read == size  # an example counts once, whatever the epochs
        whole = batches(40, source)
        for i in range(0, 36, 5):
            resumed = batches(3, source, position=whole[i].position)
            assert all(same(a, b) for a, b in zip(whole[i + 1 :], resumed, strict=False))
        plain = batches(40, source, SMALL.replace(workers=0))
        assert all(same(a, b) for a, b in zip(whole, plain, strict=True))
    assert len(list(Coming().examples())) == 150


def test_processes_give_way_to_a_thread() -> None:
    with stream(Coming(), Characters(), Batching(workers=3), seq2seq=True) as opened:
        assert next(opened).labels is not None


def test_how_much_of_an_epoch_is_done_is_known_once_its_entries_are_counted() -> None:
    coming = Coming()
    assert count(coming) == coming.size
    blind = [batch.position["passed"] for batch in batches(None, coming, epochs=2)]
    known = [batch.position["passed"] for batch in batches(None, coming, epochs=2, length=coming.size)]
    assert len(known) == len(blind) and blind[-1] == known[-1] == 2.0
    assert set(blind[: blind.index(1.0)]) == {0.0}
    assert known == sorted(set(known)) and 1.0 in known


def test_the_first_epoch_tells_how_long_the_next_are_and_a_resumed_stream_knows_it_too() -> None:
    with stream(Coming(), Characters(), SMALL, seq2seq=True, epochs=3) as opened:
        found = list(opened)
    passed = [batch.position["passed"] for batch in found]
    first = passed.index(1.0)
    assert set(passed[:first]) == {0.0} and passed[-1] == 3.0
    assert passed[first:] == sorted(set(passed[first:])) and len(set(passed)) > 4
    for i in range(0, len(found) - 1, 3):
        with stream(Coming(), Characters(), SMALL, seq2seq=True, epochs=3, position=found[i].position) as opened:
            assert [batch.position for batch in opened] == [batch.position for batch in found[i + 1 :]]
