"""The text of a continuation, token by token."""

from __future__ import annotations

from served_runs import Asked

from qkv.runs.inference.run import Run
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Engine

TEXT = "the dog is 3 years old and the cat"


def test_a_stop_string_ends_a_text_and_is_never_told(run: Run, engine: tuple[Engine, Decoder]) -> None:
    whole = run.generate(TEXT, max_new_tokens=20)
    stop = whole[4:6]
    one = Asked(*engine, TEXT, max_new_tokens=20, stop=[stop], streams=True)
    assert one.texts() == [whole[: whole.index(stop)]] == ["".join(one.pieces)]
    assert one.endings[0].outcome == "stop"
