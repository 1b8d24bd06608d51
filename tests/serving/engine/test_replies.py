"""Replies of `qkv chat` are those of `run.chat`, and each turn reads only what is new."""

from __future__ import annotations

from typing import Any

import pytest
import run_tiny

from qkv.runs.inference.chat import chat
from qkv.runs.inference.run import Run, load
from qkv.serving.engine import decoder as decoders
from qkv.serving.engine.replies import Replies


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load(run_tiny.assistant(tmp_path_factory.mktemp("replies")), device="cpu")


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 3, "top_p": 0.9}, {"repetition_penalty": 1.5}])
def test_replies_are_those_of_chat(run: Run, options: dict[str, Any]) -> None:
    engine, messages = Replies(run), list[dict[str, Any]]()
    for text in ("1 + 1?", "2 + 1?", "and 3?"):
        messages.append({"role": "user", "content": text})
        pieces: list[str] = []
        reply = engine.stream(messages, run.settings(**options), pieces.append)
        assert reply == chat(run, messages, **options) == "".join(pieces)
        messages.append({"role": "assistant", "content": reply})
    whole = chat(run, messages[:1])
    stop = whole[2:4]
    assert engine.stream(messages[:1], run.settings(), pieces.append, [stop]) == whole[: whole.index(stop)]


def test_a_turn_reads_only_what_is_new(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "CHUNK", 8)
    monkeypatch.setattr(decoders, "BLOCK", 8)
    engine, messages = Replies(run), list[dict[str, Any]]()
    counts = []
    for text in ("1 + 1?", "2 + 1?", "and 3?"):
        messages.append({"role": "user", "content": text})
        before = engine.decoder.statistics.prompt_tokens
        reply = engine.stream(messages, run.settings(max_new_tokens=6), lambda _: None)
        counts.append(engine.decoder.statistics.prompt_tokens - before)
        assert reply == chat(run, messages, max_new_tokens=6)
        messages.append({"role": "assistant", "content": reply})
    assert max(counts) - min(counts) < 8 + 12 and engine.decoder.prefixes.nbytes > 0
    assert sum(counts) < sum(len(run.words.chat.prompt(messages[: 2 * i + 1])) for i in range(3))


def test_a_reply_that_is_interrupted_leaves_nothing_behind(run: Run) -> None:
    engine, messages = Replies(run), [{"role": "user", "content": "1 + 1?"}]

    def interrupt(piece: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.stream(messages, run.settings(), interrupt)
    assert not engine.decoder.rows and not engine.decoder.reading
    assert engine.stream(messages, run.settings(), lambda _: None) == chat(run, messages)


def test_other_models_and_settings_are_not_served_so(run: Run) -> None:
    assert Replies.serves(run, run.settings())
    assert not Replies.serves(run, run.settings(speculate={"kind": "lookup"}))
