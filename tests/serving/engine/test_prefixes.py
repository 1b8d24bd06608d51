"""Shared beginnings of prompts are read once."""

from __future__ import annotations

import pytest
from served_runs import Asked

from qkv.runs.inference.run import Run
from qkv.serving.engine import decoder as decoders
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Engine


def test_a_long_prompt_is_read_in_chunks_and_a_shared_beginning_once(
    run: Run, engine: tuple[Engine, Decoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders, "CHUNK", 32)
    engine[1].prefixes.chunk = 32
    text = "the dog is 40 years young and the cat is 3 years old, " * 5
    first = Asked(*engine, text + "so", max_new_tokens=6, likeliest=0)
    first.texts()
    second, third = (
        Asked(*engine, text + "so", max_new_tokens=6, likeliest=0),
        Asked(*engine, text + "it", max_new_tokens=6),
    )
    assert second.texts() == first.texts() and first.endings[0].tokens == second.endings[0].tokens
    assert third.texts() == [run.generate(text + "it", max_new_tokens=6)]
    assert first.work.reused == 0 and second.work.reused == third.work.reused >= 64
