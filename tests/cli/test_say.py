"""What reaches a terminal: nothing that acts on it, whoever wrote it. And how a command ends that can't print."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fast_subset import fast
from preloaded_python import python
from run_untrained import bert, of, words

from qkv.cli import main
from qkv.cli.results import show
from qkv.cli.say import visible
from qkv.nn.models.heads.sequence import SequenceClassifier

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08"


def test_control_characters_are_spelled_out() -> None:
    assert visible(f"a{EVIL}b") == f"a{SHOWN}b"
    plain = "line\n\ttab, German ü, 日本, 👩‍👩‍👧, \u202bعربي\u202c"
    assert visible(plain) == plain
    assert visible("\ud800") == r"\ud800"


def on_a_terminal(*arguments: str, folder: Path) -> tuple[int, str]:
    """The status of a command, and what its terminal was sent, of both streams."""
    leader, follower = pty.openpty()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TERM": "xterm",
        "NO_COLOR": "1",
        "COLUMNS": "300",
    }
    command = [*python(), "-m", "qkv", *arguments]
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, cwd=folder, env=environment
    ) as run:
        os.close(follower)
        sent = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # Linux says so if the other end is closed
                break
            if not part:
                break
            sent += part
    os.close(leader)
    return run.returncode, sent.decode("utf-8", "replace").replace("\r\n", "\n")


def evil_classifier(folder: Path) -> Path:
    """A model of the Hub whose second class acts on terminals."""
    bert(SequenceClassifier(labels=2)).save(folder, "hub")
    path = folder / "config.json"
    labels = {"id2label": {"0": f"good{EVIL}", "1": f"bad{EVIL}"}, "label2id": {f"good{EVIL}": 0, f"bad{EVIL}": 1}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **labels}))
    return folder


def test_names_of_classes_do_not_act_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = evil_classifier(tmp_path / "model")
    status, sent = on_a_terminal("classify", str(folder), "ab", folder=tmp_path)
    assert status == 0 and r"\x1b]0;owned" in sent and "\x1b" not in sent and "\x9b" not in sent
    assert main(["classify", str(folder), "ab"]) == 0  # no terminal: to the byte
    assert f"good{EVIL}" in capsys.readouterr().out


def test_names_of_files_do_not_act_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (["eval", f"no{EVIL}"], ["show", f"no{EVIL}"], [f"no{EVIL}"], ["train", f"no{EVIL}.yaml"]):
        assert main(line) == 2
        said = capsys.readouterr().err
        assert r"\x1b" in said and not set(said) & set("\x1b\x07\x9b\r\x08"), line


def test_tables_do_not_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    sample = {"source": f"a{EVIL}", "output": f"b{EVIL}", "target": f"c{EVIL}"}
    found = {"split": "test", "examples": 1, "seconds": 0.1, "metrics": {"loss": 1.0}, "signatures": {"loss": EVIL}}
    show({**found, "samples": [sample], "notes": [f"note{EVIL}"]})
    said = capsys.readouterr().out
    assert said.count(r"\x1b]0;owned") == 5 and not set(said) & set("\x1b\x07\x9b\r\x08")


def test_samples_need_only_an_output(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"split": "test", "examples": 1, "seconds": 0.1, "metrics": {}, "signatures": {}, "notes": []}
    show({**found, "samples": [{"output": "3", "picture": {"kind": "ticks", "count": 3}}]})
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == ["output", "3"]
    show({**found, "samples": [{"output": "3", "target": "4"}]})
    assert [line.split() for line in capsys.readouterr().out.splitlines()][-2:] == [["output", "reference"], ["3", "4"]]


# -- where nobody hears ---------------------------------------------------------------------------------------------


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONUNBUFFERED": "",
        "QKV": f"{shlex.join(python())} -m qkv",
    }
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=120,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
@pytest.mark.parametrize(
    "what",
    fast(["list recipes", "list patterns --json", "show gpt2 --json", "cost gpt2 n_layers=1"], "show gpt2 --json"),
)
def test_a_full_disk_and_a_closed_pipe_are_no_bug(what: str, tmp_path: Path) -> None:
    full = shell(f"$QKV {what} > /dev/full", tmp_path)
    assert (full.returncode, full.stderr) == (2, "qkv: the disk is full; what was saved before is intact\n")
    closed = shell(f"$QKV {what} | true", tmp_path)
    assert closed.returncode in (0, 1) and not closed.stderr
    nowhere = shell(f"$QKV {what} >&-", tmp_path)
    assert "bug" not in nowhere.stderr and "Traceback" not in nowhere.stderr


def test_a_reader_that_leaves_ends_a_long_output(tmp_path: Path) -> None:
    of("gpt2", words(), "continue").save(tmp_path / "lm", "qkv")
    done = shell("yes ab | head -3000 | $QKV score lm | head -1", tmp_path)
    assert done.returncode != 0 and done.stdout.count("\n") == 1 and not done.stderr


def test_faults_of_files_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of("gpt2", words(), "continue").save(tmp_path / "lm", "qkv")
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken.txt.gz").write_bytes(b"\x1f\x8b\x08\x00 no gzip at all")
    lm = str(tmp_path / "lm")
    lines = (
        ["embed", lm, "a", "--out", str(tmp_path / "folder.npy")],
        ["embed", lm, "a", "--out", str(tmp_path / "file/x.npy")],
        ["generate", str(tmp_path / "file/x"), "a"],
        ["generate", str(tmp_path / "file"), "a"],
        ["eval", str(tmp_path)],
        ["list", "patterns", "--out", str(tmp_path / "file")],
        ["show", str(tmp_path / "folder.npy")],
        ["convert", lm, str(tmp_path / "file")],
        ["convert", lm, str(tmp_path / "file/x.safetensors"), "--to", "safetensors"],
        ["vectors", "nearest", str(tmp_path / "folder.npy"), "a"],
        ["vectors", "nearest", str(tmp_path / "broken.txt.gz"), "a"],
        ["train", "lm", f"data.path={tmp_path / 'broken.txt.gz'}"],
        ["tokenizer", "train", str(tmp_path / "folder.npy")],
        ["generate", "a" * 5000, "a"],
        ["generate", "a\0b", "a"],
    )
    for line in lines:
        status, said = main(line), capsys.readouterr().err
        assert status == 2 and len(said.splitlines()) == 1 and "bug" not in said, (line, said)


def test_bare_commands_show_their_help(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ([], ["tokenizer"], ["vectors"]):
        assert main(line) == 2
        printed = capsys.readouterr()
        assert "Usage: qkv" in printed.out + printed.err and "qkv: " not in printed.err
