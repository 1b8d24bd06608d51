"""docs/serving.md: its server answers a batch, and refuses what it can't answer; its command runs."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import runpy
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qkv
from qkv.cli import main

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "serve.py"


@pytest.fixture(scope="module")
def address(trained: Path) -> Iterator[str]:
    server = runpy.run_path(str(EXAMPLE))["server"](str(trained), 0, timeout=1.0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def post(address: str, content: Any) -> tuple[int, Any]:
    request = urllib.request.Request(address, json.dumps(content).encode())
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_server_gives_what_generate_gives(trained: Path, address: str) -> None:
    texts = ["<de> 3 days ago", "<fr> 5 minutes ago"]
    status, said = post(address, {"texts": texts, "options": {"num_beams": 2}})
    assert (status, said["answers"]) == (200, qkv.load(trained).generate(texts, num_beams=2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"texts": "one"}, "a request is"),
        ([], "a request is"),
        ({"texts": ["a"], "options": {"num_beams": 0}}, "num_beams"),
    ],
)
def test_a_request_that_cannot_be_answered(content: Any, message: str, address: str) -> None:
    status, said = post(address, content)
    assert status == 400 and message in said["error"]


@pytest.mark.parametrize(("length", "status"), [("many", 400), ("-1", 400), ("9" * 5000, 400), ("1000001", 413)])
def test_a_length_that_cannot_be_read(length: str, status: int, address: str) -> None:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == status and "bytes" in json.load(answer)["error"]
    connection.close()


def test_idle_and_half_sent_connections_block_nobody(address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        idle, half = (stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(2))
        half.sendall(f"POST / HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert post(address, {"texts": ["<de> 3 days ago"]})[0] == 200
        for connection in (idle, half):  # and both are closed after the timeout
            connection.settimeout(60)
            assert connection.recv(1) == b""


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Host", "evil.example"),
        ("Host", "evil.example:80"),
        ("Host", "127.0.0.1.evil.example"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
    ],
)
def test_requests_of_web_pages_are_refused(header: str, value: str, address: str) -> None:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", "/", skip_host=header == "Host")
    connection.putheader(header, value)
    connection.putheader("Content-Length", "2")
    connection.endheaders(b"{}")
    answer = connection.getresponse()
    assert answer.status == 403 and json.load(answer)["error"]
    connection.close()


def test_the_command_of_the_page_runs(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"<de> 3 days ago\n")))
    assert main(["generate", str(trained), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"]
