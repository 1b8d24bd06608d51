"""The commands of docs/modalities.md on conversations with pictures, from training to a reply."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from qkv.cli import main

DOCS = Path(__file__).parents[4] / "docs" / "modalities.md"
SMALL = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=16", "tokenizer.vocab_size=280"]
SMALL += ["training.max_steps=2", "training.eval_every=2", "evaluation.examples=2", "evaluation.test_examples=2"]


def commands() -> list[list[str]]:
    """The commands of the block that trains on chats.jsonl, without the name of the program."""
    blocks = re.findall(r"```(?:bash|text)\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    (block,) = [block for block in blocks if "data.path=chats.jsonl" in block]
    return [shlex.split(line, comments=True)[1:] for line in block.strip().splitlines()]


def write(folder: Path) -> None:
    lines = []
    for i in range(24):
        Image.new("RGB", (32, 32), (10 * i, 0, 99)).save(folder / f"{i}.png")
        content = [{"type": "image", "path": f"{i}.png"}, {"type": "text", "text": "what color is it?"}]
        said = [{"role": "user", "content": content}, {"role": "assistant", "content": f"color {i}"}]
        lines.append(json.dumps({"messages": said}))
    (folder / "chats.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "questions.jsonl").write_text("\n".join(lines[:2]), encoding="utf-8")
    (folder / "shape.png").write_bytes((folder / "0.png").read_bytes())


@pytest.mark.slow
def test_three_commands_train_on_pictures_and_chat_about_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    train, chat, generate = commands()
    assert train[:2] == ["train", "chat"] and chat[0] == "chat" and generate[0] == "generate"
    assert main([*train, *SMALL]) == 0, capsys.readouterr().err
    assert (tmp_path / "runs" / "chat" / "report.html").exists()
    capsys.readouterr()
    greedy = ["--max-new-tokens", "4", "--top-k", "1"]
    assert main([*chat, *greedy, "--json"]) == 0, capsys.readouterr().err
    reply = json.loads(capsys.readouterr().out)["reply"]
    lines = (tmp_path / "questions.jsonl").read_bytes() + b"\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main([*[one for one in generate if one not in ("<", "questions.jsonl")], *greedy, "--json"]) == 0
    said = [json.loads(line)["outputs"][0]["text"] for line in capsys.readouterr().out.splitlines()]
    assert said[0] == reply  # the first question is about the same picture
    run = "runs/chat"
    assert main(["chat", run, "--image", "0.png", "--image", "1.png", "what?", "<image> and?", *greedy]) == 2
    assert "1 placeholder <image> and 2 images" in capsys.readouterr().err
    assert main(["chat", run, "--image", "0.png", "--image", "1.png", "<image> what?", "<image> and?", *greedy]) == 0
    for command in ("predict", "generate"):
        assert main([command, run, "--image", "0.png", "what?"]) == 2
        assert "trained on conversations" in capsys.readouterr().err
    assert main(["chat", run, "--sound", "0.png", "what?"]) == 2
    assert "this model reads text and images" in capsys.readouterr().err
