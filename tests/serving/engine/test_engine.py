"""The engine: answers are those of `Run.generate`, whatever runs beside them; places are freed; failures stay apart."""

from __future__ import annotations

import threading

import pytest
from served_runs import OPTIONS, TEXTS, Asked, settle

from qkv.runs.inference.run import Run
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Busy, Engine
from qkv.serving.engine.jobs import alone


def test_a_request_gets_what_generate_gives_whatever_runs_beside_it(run: Run, engine: tuple[Engine, Decoder]) -> None:
    assert engine[1].fused is not None
    pairs = [(text, options) for text in TEXTS for options in OPTIONS]
    asked = [Asked(*engine, text, streams=bool(i % 2), **options) for i, (text, options) in enumerate(pairs)]
    for i, (one, (text, options)) in enumerate(zip(asked, pairs, strict=True)):
        (found,) = one.texts()
        assert found == run.generate(text, **options)
        assert "".join(one.pieces) == (found if i % 2 else "")
    settle(engine[0])
    assert engine[0].statistics.new_tokens > 100 and engine[0].tokens == 0


def test_a_request_that_is_given_up_frees_its_place(engine: tuple[Engine, Decoder]) -> None:
    one = Asked(*engine, "the", max_new_tokens=400, min_new_tokens=400)
    while not engine[0].rows:
        pass
    one.work.cancelled = True
    assert one.done.wait(60) and one.endings[0].outcome == "cancelled"
    Asked(*engine, "the", max_new_tokens=2).texts()
    settle(engine[0])
    assert engine[0].tokens == 0 and engine[0].rows == 0


def test_what_never_fits_is_refused_and_what_does_not_fit_now_waits(run: Run, engine: tuple[Engine, Decoder]) -> None:
    with pytest.raises(ValueError, match="room for 4,096"):
        Asked(*engine, "the", max_new_tokens=400, num_samples=40, temperature=1.0)
    with pytest.raises(ValueError, match="leaves no room in the model's context"):
        Asked(*engine, "the " * 600)
    engine[0].most_tokens, engine[0].most_waiting = 80, 5
    asked = [Asked(*engine, "the cat", max_new_tokens=40) for _ in range(3)]
    assert {one.texts()[0] for one in asked} == {run.generate("the cat", max_new_tokens=40)}
    engine[0].most_waiting = 0
    with pytest.raises(Busy, match="wait already"):
        Asked(*engine, "the")
    with pytest.raises(Busy):
        engine[0].do(alone(lambda: 1))


def test_an_admitted_request_is_finished_though_the_queue_is_full_or_the_engine_closes(
    engine: tuple[Engine, Decoder],
) -> None:
    with engine[0].admit():
        engine[0].most_waiting = 0
        with pytest.raises(Busy, match="wait already"), engine[0].admit():
            pass
        assert engine[0].do(alone(lambda: 1), admitted=True).result(60) == [1]
        closing = threading.Thread(target=engine[0].close)
        closing.start()
        while engine[0].state != "ending":
            pass
        with pytest.raises(Busy, match="shutting down"):
            engine[0].do(alone(lambda: 2))
        assert engine[0].do(alone(lambda: 3), admitted=True).result(60) == [3]
    closing.join(60)
    assert not closing.is_alive()
