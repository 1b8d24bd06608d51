"""`qkv chat`, and `qkv generate --chat`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import run_tiny

from qkv.cli import main
from qkv.runs.inference.chat import chat
from qkv.runs.inference.run import load


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny.assistant(tmp_path_factory.mktemp("runs"))


def test_a_conversation_remembers_what_was_said(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["chat", str(run), "1 + 1?", "2 + 1?", "--system", "Add.", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    loaded = load(run, device="cpu")
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1?"}]
    assert first == {"message": "1 + 1?", "reply": chat(loaded, messages)}
    messages += [{"role": "assistant", "content": first["reply"]}, {"role": "user", "content": "2 + 1?"}]
    assert second["reply"] == chat(loaded, messages)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 + 1?\n\n2 + 1?\n")))
    assert main(["chat", str(run), "--system", "Add."]) == 0
    assert capsys.readouterr().out == f"{first['reply']}\n\n{second['reply']}\n"  # a blank line for a blank one


def test_generate_answers_each_message_by_itself(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load(run, device="cpu")
    replies = [chat(loaded, [{"role": "user", "content": text}]) for text in ("1 + 1?", "5 + 1?")]
    assert main(["generate", str(run), "1 + 1?", "5 + 1?", "--chat", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["outputs"][0]["text"] for line in found] == replies
    assert main(["generate", str(run), "1 + 1?", "5 + 1?", "--chat", "--stream"]) == 0
    assert capsys.readouterr().out == "".join(f"{reply}\n" for reply in replies)


def test_mistakes_are_one_sentence(
    run: Path, trained: Path, trained_lm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, said in (
        (["chat", str(trained), "a"], "is an encoder–decoder, and only a language model replies"),
        (["chat", str(trained_lm), "a"], "has no chat template"),
        (["generate", str(trained_lm), "a", "--chat"], "has no chat template"),
        (["generate", str(run), "a", "--system", "b"], "use it with --chat"),
        (["chat", str(run), "a", "--top-p", "2"], "top_p"),
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr().err.strip()
        assert said in printed and len(printed.splitlines()) == 1
