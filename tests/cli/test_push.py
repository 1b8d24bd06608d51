"""`qkv push`: what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hub_server import Hub
from run_untrained import of, words

from qkv.cli import main


def test_the_command_shows_what_goes_and_the_page(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(of("gpt2", words(), "continue", max_positions=32).save(tmp_path / "run", to="qkv"))
    assert main(["push", source, "me/one", "--dry-run", "--branch", "dev"]) == 0
    assert re.search(r"[\d,]+ bytes would go to the branch dev of me/one; nothing was sent", capsys.readouterr().out)
    assert main(["push", source, "me/one", "--license", "mit", "--language", "de", "--dtype", "bf16"]) == 0
    assert capsys.readouterr().out.endswith(f"/me/one/commit/{hub.repositories['me/one'].branches['main']}\n")
    assert b"language: [de]\nlicense: mit\n" in hub.repositories["me/one"].files()["README.md"]
    assert main(["push", source, "me/one", "--token", "secret"]) == 2
    assert "there is no option --token; `qkv push` takes the token of `hf auth login`" in capsys.readouterr().err


def test_an_unfinished_run_is_refused(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "recipe.yaml").write_text("data: {kind: reverse}\n")
    assert main(["push", str(tmp_path / "begun"), "me/one"]) == 2
    assert "is not finished (it has no config.json)" in capsys.readouterr().err and not hub.asked
