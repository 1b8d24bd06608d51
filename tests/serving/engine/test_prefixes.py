"""Shared beginnings of prompts are read once, and change no bit of an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from served_runs import Asked

from qkv.runs.inference.run import Run
from qkv.serving.engine.continuation import ChosenToken
from qkv.serving.engine.decoder import BLOCK, Decoder
from qkv.serving.engine.engine import Engine
from qkv.serving.engine.jobs import alone
from qkv.serving.engine.prefixes import Prefixes
from qkv.serving.engine.statistics import Statistics

TEXT = "the dog is 40 years young and the cat is 3 years old, " * 5
ENDS = ["so", "it seems to be so", "the cat is 40", "or", "and so the dog is old and the cat is young, " * 3]


def tokens_of(asked: Asked) -> tuple[ChosenToken, ...]:
    """The tokens of an answer, with all digits of their log-probabilities."""
    asked.texts()
    return asked.endings[0].tokens


@pytest.fixture
def fresh(run: Run) -> Iterator[tuple[Engine, Decoder]]:
    """An engine that keeps no prefixes."""
    engine = Engine(4096, threads=1)
    decoder = Decoder(run, engine.statistics)
    engine.decoders.append(decoder)
    engine.start()
    yield engine, decoder
    engine.close(60)


def test_a_shared_beginning_is_read_once_and_changes_no_bit(
    run: Run, engine: tuple[Engine, Decoder], fresh: tuple[Engine, Decoder]
) -> None:
    shared = len(run.encode(TEXT))
    alone_ones = [tokens_of(Asked(*fresh, TEXT + end, max_new_tokens=6, likeliest=0)) for end in ENDS]
    assert fresh[0].statistics.prompt_tokens == sum(len(run.encode(TEXT + end)) for end in ENDS)
    gate = threading.Event()
    engine[0].do(alone(gate.wait))  # so that all wait before the first is read
    asked = [Asked(*engine, TEXT + end, max_new_tokens=6, likeliest=0) for end in ENDS]
    gate.set()
    assert [tokens_of(one) for one in asked] == alone_ones
    assert asked[0].work.reused == 0
    assert all(0 <= shared - one.work.reused < 2 * BLOCK and one.work.reused % BLOCK == 0 for one in asked[1:])
    assert engine[0].statistics.prompt_tokens < shared + sum(2 * BLOCK + len(run.encode(end)) for end in ENDS)


def test_blocks_are_kept_once_and_the_oldest_go_first(run: Run) -> None:
    decoder = Decoder(run, Statistics(), prefix_bytes=1 << 30)

    def read(ids: list[int], prefixes: Prefixes) -> None:
        cache = run.model.start(1)
        run.model.step(torch.tensor([ids]), cache)  # type: ignore[operator]
        prefixes.keep(ids, cache)

    with torch.inference_mode():
        prefixes, first = decoder.prefixes, list(range(4 * BLOCK))
        read(first, prefixes)
        one = prefixes.nbytes // 4
        read([*first[: 2 * BLOCK], *range(100, 100 + 2 * BLOCK + 3)], prefixes)
        assert prefixes.nbytes == 6 * one
        few = Prefixes(5 * one, BLOCK)
        read(first, few)
        read([*first[: 2 * BLOCK], *range(100, 100 + 2 * BLOCK + 3)], few)
        assert few.nbytes == 5 * one  # the last block of the first prompt is gone
        lengths = [few.fill([*ids, 1], run.model.start(1)) for ids in (first, range(9, 9 + BLOCK), first[: BLOCK - 1])]
        assert lengths == [3 * BLOCK, 0, 0]
        few.clear()
        assert few.nbytes == 0 and few.fill(first, run.model.start(1)) == 0
