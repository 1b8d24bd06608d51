"""`python -m bench served`: the load generator measures a real server."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench.corpora import missing
from bench.served import command, contenders, load
from bench.served.overhead import Kept
from bench.served.processes import free_port

from bench import peers, soak


def test_prompts_are_of_unequal_lengths_and_quantiles_of_the_values() -> None:
    prompts = load.made_prompts(20, 30)
    assert len({len(prompt.split()) for prompt in prompts}) > 5 and load.made_prompts(20, 30) == prompts
    assert load.quantile([3.0, 1.0, 2.0], 0.5) == 2.0 and load.quantile([1.0], 0.95) == 1.0


@pytest.mark.parametrize("name", list(load.DATA))
def test_real_prompts_are_texts_of_unequal_lengths(name: str) -> None:
    if lacks := missing(name):
        pytest.skip(lacks)
    texts = load.real_prompts(name)
    assert len(texts) >= 1000 and all(isinstance(text, str) for text in texts)
    assert len({len(text) for text in texts}) > 50


@pytest.mark.slow
def test_embeddings_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--requests", "6", "--clients", "3", "--path", "/v1/embeddings"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split("|")
    assert row[2].strip() == "6" and row[3].strip() == "0" and float(row[4]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--clients", "1", "3"], ["--rate", "20"], ["--clients", "2", "--fast"]])
def test_a_server_is_measured(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--requests", "6", "--new", "6", *options]) == 0
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    assert rows and all(
        row[2].strip() == "6" and row[3].strip() == "0" and float(row[4]) > 0 and float(row[5]) > 0 for row in rows
    )


@pytest.mark.slow
def test_a_server_stays_as_it_is_under_mixed_requests(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["small-english", "--requests", "200", "--clients", "8"]) == 0
    assert "equal" in capsys.readouterr().out


@pytest.mark.slow
def test_the_overhead_and_a_shared_prefix_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--overhead", "--run", "small-english", "--requests", "4", "--new", "4"]) == 0
    assert "of the library's throughput" in capsys.readouterr().out
    assert command.main(["--prefix", "--quick", "--requests", "3", "--new", "2"]) == 0
    own, shared = capsys.readouterr().out.splitlines()[3:5]
    assert own.split("|")[3].strip() == "3,024" and shared.split("|")[3].strip() == "1,040"  # 3 × 1,008 − 2 × 992


STAND_IN = """
import http.server, json, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.answer({"data": [{"id": "it"}]})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.answer({"data": [{"text": " ".join(["w2"] * asked["options"]["max_new_tokens"])}]})
    def answer(self, body):
        self.send_response(200); self.end_headers(); self.wfile.write(json.dumps(body).encode())
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[-1])), Answers).serve_forever()
"""


@pytest.mark.slow
def test_servers_take_turns_and_a_missing_one_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "front.py").write_text(STAND_IN)
    texts = tmp_path / "texts"
    texts.write_text("two dogs run\na man\n" * 4)

    def other(setting: contenders.Setting) -> contenders.Server:
        return contenders.Server([sys.executable, str(tmp_path / "front.py"), str(setting.port)], contenders.new_tokens)

    work = contenders.WORKS["translation"]
    several = {**work.contenders, "other": other}
    monkeypatch.setitem(contenders.WORKS, "translation", replace(work, contenders=several))
    words = ["--against", "translation", "--quick", "--requests", "4", "--clients", "2", "--rounds", "1", "--new", "3"]
    assert command.main([*words, "--prompts", str(texts), "--peer", "CTranslate2=/no/python"]) == 0
    said = capsys.readouterr().out
    assert "CTranslate2 is missing: " in said and "other: 0 of 4 texts equal ours" in said
    assert "times the best other server's rate with 2 clients" in said
    rows = [line.split("|") for line in said.splitlines() if line.startswith(("| qkv |", "| other |"))]
    assert [row[1].strip() for row in rows] == ["qkv", "other"] and all(row[4].strip() == "0" for row in rows)


def test_every_missing_server_is_told_of_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "ENVS", tmp_path)
    setting = contenders.Setting("fp32", 1, 1, True, {})
    for make in (contenders.llama_server, contenders.vllm, contenders.transformers_serve, contenders.ctranslate2):
        with pytest.raises(ValueError, match=r"make it with python -m bench\.peers"):
            make(setting)
    for make in (
        contenders.vllm,
        contenders.transformers_serve,
        contenders.ctranslate2,
        contenders.sentence_transformers,
    ):
        with pytest.raises(ValueError, match=r"computes in fp32.* here, not in int4"):
            make(replace(setting, precision="int4"))


def test_a_server_that_dies_is_told_of_in_one_sentence() -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SystemExit, match=rf"^the server at {nowhere} stopped answering \(ConnectError"):
        command.main(["--url", nowhere, "--model", "m", "--requests", "2", "--clients", "1"])
    with pytest.raises(load.ServerLostError, match="stopped answering"):
        Kept(nowhere)("/v1/completions", {})


def test_sentences_become_ids_of_the_tiny_vocabulary() -> None:
    assert contenders.as_ids(["two dogs run", "dogs run"]) == ["w2 w3 w4", "w3 w4"]


def test_answers_are_compared_without_what_belongs_to_one_request() -> None:
    first = {
        "id": "a",
        "created": 1,
        "choices": [{"text": "x"}],
        "usage": {"prompt_tokens_details": {"cached_tokens": 0}},
    }
    other = {
        "id": "b",
        "created": 2,
        "choices": [{"text": "x"}],
        "usage": {"prompt_tokens_details": {"cached_tokens": 9}},
    }
    assert soak.essence(first) == soak.essence(other) != soak.essence(first | {"choices": [{"text": "y"}]})
