"""`qkv serve`: a real process, asked by clients that others wrote; and mistakes on the command line."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import run_tiny
from server_process import Process

import qkv
from qkv.cli import main
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

KEY = "a-key-for-tests-0123456789"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Iterator[Process]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"{KEY}\n", encoding="utf-8")
    process = Process("small-english", str(trained), "--api-key-file", str(keys))
    yield process
    said = process.stop()
    assert KEY not in said and "Traceback" not in said, said


@pytest.mark.slow
def test_openais_client_gets_what_generate_gives(server: Process) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
    run = qkv.load("small-english", device="cpu")
    ask: dict[str, Any] = {"model": "small-english", "prompt": "The old man", "max_tokens": 12, "temperature": 0}
    want = run.generate("The old man", max_new_tokens=12, do_sample=False, temperature=None, top_p=None, top_k=None)
    assert client.completions.create(**ask).choices[0].text == want
    assert "".join(chunk.choices[0].text for chunk in client.completions.create(**ask, stream=True)) == want
    found = client.completions.create(**ask | {"logprobs": 3, "echo": True}).choices[0].logprobs
    assert found is not None and found.token_logprobs[0] is None and len(found.top_logprobs[-1]) == 3
    assert next(model.id for model in client.models.list()) == "small-english"
    vector = client.embeddings.create(model="small-english", input="The old man").data[0].embedding  # base64 by default
    assert vector == pytest.approx(run.embed("The old man").tolist(), abs=1e-6)
    for change, error in (({"model": "gpt-4"}, openai.NotFoundError), ({"max_tokens": -1}, openai.BadRequestError)):
        with pytest.raises(error):
            client.completions.create(**ask | change)
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="another", max_retries=0).models.list()


@pytest.mark.slow
def test_answers_under_load_are_those_of_requests_alone(server: Process) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)

    def ask(i: int) -> Any:
        answer = client.completions.create(
            model="small-english",
            prompt=f"Number {i} said that",
            max_tokens=10 + i,
            seed=i,
            temperature=i % 3 / 2,
            logprobs=1,
        )
        return answer.choices[0].text, answer.choices[0].logprobs.token_logprobs

    alone = [ask(i) for i in range(16)]
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        assert list(threads.map(ask, range(16))) == alone


@pytest.mark.slow
def test_curl_translates(server: Process, trained: Path) -> None:
    body = json.dumps({"input": ["a b c"]})
    command = ["curl", "-sS", f"{server.url}/v1/translate", "-H", f"Authorization: Bearer {KEY}", "-d", body]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert answer["data"][0]["text"] == qkv.load(trained, device="cpu").generate("a b c")


SHORT = ("training.max_steps=2", "training.eval_every=1", "training.save_every=1")


@pytest.mark.slow
def test_every_documented_example_is_answered_as_described(trained: Path, trained_lm: Path, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for name in ("classify", "tag", "answer"):
        train(Recipe.load(name, SHORT), tmp_path / name, device="cpu")
    run_tiny.assistant(tmp_path)
    others = [path for path in tmp_path.iterdir() if (path / "config.json").exists()]
    server = Process(*map(str, (trained, trained_lm, *others)))
    document, tried = json.loads(asked(f"{server.url}/openapi.json")[0]), set()
    for path, methods in document["paths"].items():
        ((method, about),) = methods.items()
        content = about.get("requestBody", {}).get("content", {}).get("application/json", {})
        body = [] if method == "get" else ["-d", json.dumps(content["example"])]
        text, status = asked(f"{server.url}{path}", *body)
        assert status == "200", (path, text)
        ((media, answer),) = about["responses"]["200"]["content"].items()
        jsonschema.validate(json.loads(text) if media.endswith("json") else text, answer["schema"])
        tried.add(path)
    assert len(tried) == 15
    server.stop()


def asked(url: str, *options: str) -> tuple[str, str]:
    """What curl prints of an answer, and its status."""
    command = ["curl", "-sS", "-w", "\n%{http_code}", url, *options]
    text, _, status = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rpartition("\n")
    return text, status


@pytest.mark.slow
def test_a_client_that_hangs_up_frees_its_place(server: Process) -> None:
    body = json.dumps(
        {"model": "small-english", "prompt": "The", "max_tokens": 240, "min_tokens": 240, "stream": True}
    ).encode()
    fields = ["Host: 127.0.0.1", f"Authorization: Bearer {KEY}", f"Content-Length: {len(body)}"]
    head = "\r\n".join(["POST /v1/completions HTTP/1.1", *fields, "", ""])
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + body)
        assert b"200 OK" in connection.recv(4096)
    for _ in range(100):
        time.sleep(0.02)
        if metric(server, "qkv_rows_running") == 0:
            break
    assert metric(server, "qkv_rows_running") == 0 and metric(server, "qkv_tokens_in_flight") == 0


def metric(server: Process, name: str) -> float:
    from prometheus_client.parser import text_string_to_metric_families

    command = ["curl", "-sS", f"{server.url}/metrics", "-H", f"Authorization: Bearer {KEY}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return next(f.samples[0].value for f in text_string_to_metric_families(text) if f.name == name)


@pytest.mark.slow
def test_what_was_accepted_is_finished_before_the_end(trained: Path) -> None:
    server = Process("small-english")
    body = json.dumps({"prompt": "The", "max_tokens": 200, "min_tokens": 200})
    asked = subprocess.Popen(
        ["curl", "-sS", f"{server.url}/v1/completions", "-d", body], stdout=subprocess.PIPE, text=True
    )
    for _ in range(200):
        time.sleep(0.01)
        text = subprocess.run(
            ["curl", "-sS", f"{server.url}/metrics"], capture_output=True, text=True, check=True
        ).stdout
        if "qkv_rows_running 1.0" in text:
            break
    server.stop()
    assert json.loads(asked.communicate(timeout=60)[0])["usage"]["completion_tokens"] == 200


ATTACKS = {
    "no request": b"\x00\x01\x02\x03\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "a huge head": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    "a huge path": b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a length that is none": b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    "a length beyond all": b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
    + b"9" * 99
    + b"\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "bad chunks": b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
    "an upgrade": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "a head that ends early": b"GET /health HTTP/1.1\r\nHost: 127.",
    "a body that ends early": b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90\r\n\r\n{",
    "silence": b"",
}


@pytest.mark.slow
def test_attacks_are_answered_by_4xx_or_closed_in_time(trained: Path) -> None:
    server = Process(str(trained))
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(300)]
    attackers = {name: socket.create_connection(("127.0.0.1", server.port)) for name in ATTACKS}
    for name, connection in attackers.items():
        connection.sendall(ATTACKS[name])
    command = ["curl", "-sS", "-m", "10", f"{server.url}/v1/translate", "-d", '{"input": "a b"}']
    assert "data" in json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for name, connection in attackers.items():
        connection.settimeout(40)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                received += part
                if name == "an upgrade":  # which is not answered as one, and the connection may be used again
                    break
        expected = b"HTTP/1.1 200" if name == "an upgrade" else b"HTTP/1.1 4"
        assert not received or received.startswith(expected), (name, received[:80])
        assert received or name in ("silence", "a head that ends early", "a huge head", "a length beyond all"), name
    for connection in idle:
        connection.settimeout(40)
        assert connection.recv(1) == b""  # closed
        connection.close()
    assert "data" in json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    said = server.stop()
    assert "Traceback" not in said and "a b" not in said, said


@pytest.mark.slow
def test_a_thousand_idle_connections_and_slow_senders_are_closed_in_time(trained: Path) -> None:
    server = Process(str(trained))
    address, began = ("127.0.0.1", server.port), time.monotonic()
    idle = [socket.create_connection(address) for _ in range(900)]
    heads, bodies = ([socket.create_connection(address) for _ in range(50)] for _ in range(2))
    for connection in bodies:
        connection.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900\r\n\r\n{")
    answered = []
    while time.monotonic() - began < 30:
        for connection, byte in [*((each, b"G") for each in heads), *((each, b" ") for each in bodies)]:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(byte)
        before = time.monotonic()
        text, status = asked(f"{server.url}/v1/translate", "-d", '{"input": "a b"}')
        assert status == "200", text
        answered.append(time.monotonic() - before)
        time.sleep(1)
    for connection in (*idle, *heads):
        connection.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):
                pass
    for connection in bodies:
        connection.settimeout(10)
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")
    memory = int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[0])
    print(f"{len(answered)} answers meanwhile, the slowest after {max(answered):.2f} s; {memory / 1024:.0f} MiB")
    assert "Traceback" not in server.stop()


FORMS: dict[str, Any] = {
    "a regular expression of a million states": {"type": "regex", "regex": "((a{1,100}){1,100}){1,100}"},
    "a regular expression that backtracks": {"type": "regex", "regex": "(a|a)*(a+)+$b"},
    "an enumeration of 100,000": {"enum": [f"value {i}" for i in range(100_000)]},
    "10,000 properties": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(10_000)}},
    "a reference to itself": {"$ref": "#"},
    "nesting of 500": json.loads('{"items":' * 500 + "{}" + "}" * 500),
    "alternatives of alternatives": {
        "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 10} for i in range(20)} | {"d20": {}},
        "$ref": "#/$defs/d0",
    },
    "what can't be met": {"type": "integer", "minimum": 5, "maximum": 3},
    "a pattern in a pattern": {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$", "minLength": 10**9},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FORMS))
def test_forms_that_explode_are_refused_or_bounded_in_time(name: str, server: Process) -> None:
    form = FORMS[name]
    if form.get("type") != "regex":
        form = {"type": "json_schema", "json_schema": {"name": "form", "schema": form}}
    body = {"model": "small-english", "prompt": "The", "max_tokens": 8, "response_format": form}
    key, began = ("-H", f"Authorization: Bearer {KEY}"), time.monotonic()
    command = ["curl", "-sS", "-m", "60", "-w", "\n%{http_code}", f"{server.url}/v1/completions", *key, "-d", "@-"]
    done = subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, check=True)
    text, _, status = done.stdout.rpartition("\n")
    assert status in ("200", "400"), text[:300]
    assert "Traceback" not in text and len(text) < 2000
    text, status = asked(f"{server.url}/v1/models", *key)
    assert status == "200" and time.monotonic() - began < 30, name


def test_mistakes_are_one_sentence(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = tmp_path / "keys"
    short.write_text("abc\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, said in (
            ([str(trained), "--weights", "int3"], "int8 or int4"),
            ([str(trained), "--api-key-file", str(short)], "fewer than 16 characters"),
            ([str(trained), str(trained)], "two runs are called"),
            ([str(trained), "--models-dir", str(tmp_path)], "needs --admin-key-file"),
            ([str(trained), "--port", port], "can't listen on 127.0.0.1"),
            ([str(tmp_path / "none")], "none"),
        ):
            assert main(["serve", *arguments]) == 2
            assert said in capsys.readouterr().err
