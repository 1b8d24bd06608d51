"""Faults in the engine: whoever waits is told, the next request gets what it would get alone, and repeated crashes rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fused_models import varied_model
from served_runs import Asked, settle

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.nn.models.fused_step.rows import FusedRows
from qkv.runs.inference.run import Run
from qkv.serving.engine import crashes
from qkv.serving.engine import decoder as decoders
from qkv.serving.engine import engine as engines
from qkv.serving.engine.continuation import Continued, Work
from qkv.serving.engine.crashes import Crashes
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Engine, Unavailable
from qkv.serving.engine.jobs import Job, Jobs, alone
from qkv.serving.engine.prefixes import Prefixes
from qkv.serving.engine.statistics import Statistics
from qkv.serving.engine.unfolding import Unfolding

TEXT = "the cat is 3 years old and the dog is 40 years young, " * 3


@pytest.fixture(scope="module")
def run() -> Run:
    text = "the cat is 3 years old and the dog is 40 years young, or so it seems\n"
    sizes = {"d_model": 32, "n_heads": 4, "n_layers": 1, "vocab_size": 300, "max_positions": 512}
    return Run(varied_model("llama", sizes, {}), train(BPE(vocab_size=300), [text] * 3))


@pytest.fixture
def engine(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Engine, Decoder]]:
    monkeypatch.setattr(decoders, "CHUNK", 32)
    engine = Engine(4096, threads=1)
    decoder = Decoder(run, engine.statistics, prefix_bytes=1 << 22)
    engine.decoders.append(decoder)
    engine.start()
    yield engine, decoder
    engine.close(60)


FAULTS: list[tuple[Any, str]] = [
    *((Engine, name) for name in ("_turn", "_sweep", "_read", "_admit", "_safely", "_do_jobs", "rows", "tokens")),
    *((Decoder, name) for name in ("begin", "read", "_split", "step", "_logits", "drop_cancelled")),
    *((Continued, name) for name in ("__init__", "choose", "choose_together", "alike", "take", "end", "_tell")),
    *((Jobs, name) for name in ("__len__", "take")),
    *((Prefixes, name) for name in ("fill", "keep")),
    *((Unfolding, name) for name in ("add", "ready", "whole", "rest")),
    *((FusedRows, name) for name in ("ready", "takes", "step")),
    *((Work, name) for name in ("begun", "count", "report")),
    *((decoders, name) for name in ("_taken", "_chosen_together", "RowCache")),
    (Statistics, "first_token"),
    (Job, "run"),
    (engines, "run_together"),
]


def break_once(patch: pytest.MonkeyPatch, where: Any, name: str, error: type[BaseException]) -> Callable[[], bool]:
    """Let the next call on the engine's thread fail; returns whether it has."""
    broken = threading.Event()
    kept = vars(where)[name]

    def fail() -> None:
        if threading.current_thread().name == "qkv-engine" and not broken.is_set():
            broken.set()
            raise error("a fault")

    def call(*given: Any, **named: Any) -> Any:
        fail()
        inner = kept.__func__ if isinstance(kept, staticmethod) else kept
        return inner(*given, **named)

    replaced: Any = call
    if isinstance(kept, property) or hasattr(kept, "attrname"):
        getter = kept.fget if isinstance(kept, property) else kept.func
        assert getter is not None

        def get(self: Any) -> Any:
            fail()
            return getter(self)

        replaced = property(get)
    elif isinstance(kept, staticmethod):
        replaced = staticmethod(call)
    patch.setattr(where, name, replaced)
    return broken.is_set


@pytest.mark.parametrize(
    "error", [RuntimeError, *(pytest.param(each, marks=pytest.mark.slow) for each in (MemoryError, SystemExit))]
)
@pytest.mark.parametrize(("where", "name"), FAULTS, ids=[f"{where.__name__}.{name}" for where, name in FAULTS])
def test_whoever_waits_is_told_of_a_fault_and_the_engine_answers_again(
    where: Any,
    name: str,
    error: type[BaseException],
    engine: tuple[Engine, Decoder],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    want = run.generate(TEXT, max_new_tokens=5)
    Asked(*engine, f"so {TEXT}", max_new_tokens=2).texts()  # whose prompt is kept
    assert engine[1].prefixes.nbytes
    with monkeypatch.context() as patch:
        happened = break_once(patch, where, name, error)
        asked = [Asked(*engine, TEXT, max_new_tokens=5, streams=bool(i)) for i in range(3)]
        job = engine[0].do(alone(lambda: "done"))
        for one in asked:
            assert one.done.wait(3), "a client was not told"
            assert one.endings[0].outcome in ("error", "crashed") or one.endings[0].text == want
        assert isinstance(job.exception(3), Exception | None)
        assert happened()
    again = Asked(*engine, TEXT, max_new_tokens=5)
    assert again.texts() == [want] and again.endings[0].outcome == "length"
    assert engine[1].fused is not None and engine[0].do(alone(lambda: 7)).result(30) == [7]
    settle(engine[0])
    assert engine[0].state == "ok" and engine[0].rows == engine[0].tokens == engine[0].waiting == 0


def test_a_crash_of_one_model_harms_no_other(engine: tuple[Engine, Decoder], run: Run) -> None:
    other = Decoder(run, engine[0].statistics)
    engine[0].decoders.append(other)
    beside = Asked(engine[0], other, TEXT, max_new_tokens=60, min_new_tokens=60)
    while not other.rows:
        time.sleep(0.001)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine[1], "_logits", lambda rows: 1 / 0)
        one = Asked(*engine, TEXT, max_new_tokens=20, min_new_tokens=20)
        assert one.done.wait(60) and one.endings[0].outcome == "crashed"
    assert beside.texts() == [run.generate(TEXT, max_new_tokens=60, min_new_tokens=60)]
    assert engine[1].prefixes.nbytes == 0 and engine[0].crashes == 1 == engine[0].statistics.failures


def test_a_prompt_that_can_not_be_read_harms_no_other_of_its_model(
    engine: tuple[Engine, Decoder], run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    beside = Asked(*engine, TEXT, max_new_tokens=60, min_new_tokens=60)
    while not engine[1].rows:
        time.sleep(0.001)
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "read", lambda self: 1 / 0)
        one = Asked(*engine, "the dog", max_new_tokens=20)
        assert one.done.wait(60) and one.endings[0].outcome == "error"
    assert beside.texts() == [run.generate(TEXT, max_new_tokens=60, min_new_tokens=60)] and not engine[0].crashes
    assert "ZeroDivisionError" in caplog.text and "dog" not in caplog.text


@pytest.mark.parametrize("name", ["begin", "read"])
def test_a_request_that_a_model_refuses_is_told_why_and_no_failure(
    name: str, engine: tuple[Engine, Decoder], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("3 tokens at most; shorten the text")

    with monkeypatch.context() as patch:
        patch.setattr(Decoder, name, refuse)
        one = Asked(*engine, TEXT, max_new_tokens=2)
        assert one.done.wait(60)
    assert one.endings[0].outcome == "refused" and one.endings[0].message == "3 tokens at most; shorten the text"
    assert not engine[0].statistics.failures
    assert Asked(*engine, TEXT, max_new_tokens=5).texts() == [run.generate(TEXT, max_new_tokens=5)]


def test_a_model_rests_after_three_crashes(
    engine: tuple[Engine, Decoder], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashes, "WITHIN", 0.5)
    other = Decoder(run, engine[0].statistics)
    engine[0].decoders.append(other)
    with monkeypatch.context() as patch:
        patch.setattr(engine[1], "_logits", lambda rows: 1 / 0)
        for _ in range(crashes.MOST):
            assert Asked(*engine, "the cat", max_new_tokens=5).done.wait(60)
    assert engine[0].resting and engine[0].state == "ok"
    with pytest.raises(Unavailable, match="this model crashed repeatedly and rests"):
        Asked(*engine, "the cat", max_new_tokens=5)
    want = run.generate("the cat", max_new_tokens=5)
    assert Asked(engine[0], other, "the cat", max_new_tokens=5).texts() == [want]
    time.sleep(0.6)
    assert Asked(*engine, "the cat", max_new_tokens=5).texts() == [want] and not engine[0].resting


def test_the_engine_rests_after_three_crashes_and_does_not_spin(
    engine: tuple[Engine, Decoder], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashes, "WITHIN", 0.5)
    calls = []
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_admit", lambda self: calls.append(1) or 1 / 0)
        for _ in range(crashes.MOST):
            one = Asked(*engine, "the cat", max_new_tokens=5)
            assert one.done.wait(60) and one.endings[0].outcome == "crashed"
        assert engine[0].state == "crashing" and len(calls) == crashes.MOST
        with pytest.raises(Unavailable, match="the engine crashed repeatedly and rests; try again in"):
            engine[0].do(alone(lambda: 1))
    time.sleep(0.6)
    assert engine[0].state == "ok"
    assert Asked(*engine, "the cat", max_new_tokens=5).texts() == [run.generate("the cat", max_new_tokens=5)]


def test_a_thread_that_can_not_recover_refuses_requests(
    engine: tuple[Engine, Decoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(Engine, "_sweep", lambda self: 1 / 0)
    monkeypatch.setattr(Decoder, "restart", lambda self: 1 / 0)
    one = Asked(*engine, "the cat", max_new_tokens=5)
    assert one.done.wait(60) and one.endings[0].outcome == "crashed"
    engine[0]._thread.join(30)
    assert engine[0].state == "stopped"
    with pytest.raises(Unavailable, match="the engine has stopped"):
        Asked(*engine, "the cat", max_new_tokens=5)


def test_three_crashes_far_apart_are_no_reason_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(crashes.time, "monotonic", lambda: now[0])
    found = Crashes()
    for now[0] in (0.0, 40.0, 80.0):
        found.add()
        assert found.rest == 0
    for now[0] in (90.0, 100.0):
        found.add()
    assert found.rest == 60
    now[0] = 160.5
    assert found.rest == 0
