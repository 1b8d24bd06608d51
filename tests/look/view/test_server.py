"""The live server: this machine's own page alone gets answers."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator

import pytest

from qkv.look.view.server import LOOPBACK, MOST_BYTES, LiveServer


@pytest.fixture
def server() -> Iterator[LiveServer]:
    def answer(request: dict[str, object]) -> str:
        if request.get("text") == "bad":
            raise ValueError("this text is bad")
        if request.get("text") == "bug":
            raise KeyError("x")
        return json.dumps({"said": request["text"]})

    with LiveServer(lambda: "<p>page</p>", answer) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: LiveServer, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(LOOPBACK, server.port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    own = {"Host": f"{LOOPBACK}:{server.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        own.setdefault("Content-Length", str(len(body)))
    for name, value in own.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def post(server: LiveServer, text: str, **headers: str) -> tuple[int, str]:
    own = {"Origin": f"http://{LOOPBACK}:{server.port}", "Content_Type": "application/json", **headers}
    return ask(server, "POST", "/look", json.dumps({"text": text}).encode(), **own)


def test_it_listens_on_the_loopback_address_alone(server: LiveServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "GET", "/") == (200, "<p>page</p>")
    assert ask(server, "GET", "/", Host=f"localhost:{server.port}")[0] == 200
    assert ask(server, "GET", "/etc/passwd")[0] == 404
    assert ask(server, "PUT", "/")[0] == 501


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", ""])
def test_another_host_is_refused(server: LiveServer, host: str) -> None:
    assert ask(server, "GET", "/", Host=host)[0] == 403
    assert post(server, "a", Host=host)[0] == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "", "http://127.0.0.1", "http://127.0.0.1.evil:80"])
def test_another_origin_is_refused(server: LiveServer, origin: str) -> None:
    assert post(server, "a", Origin=origin)[0] == 403


def test_own_requests_are_answered_and_mistakes_explained(server: LiveServer) -> None:
    assert post(server, "hé") == (200, '{"said": "h\\u00e9"}')
    assert post(server, "bad") == (400, '{"error": "this text is bad"}')
    status, body = post(server, "bug")
    assert status == 500 and "KeyError" in body
    assert post(server, "a", Content_Type="text/plain")[0] == 403
    assert post(server, "a", Content_Length=str(MOST_BYTES + 1))[0] == 403
    own = {"Origin": f"http://{LOOPBACK}:{server.port}", "Content_Type": "application/json"}
    assert ask(server, "POST", "/look", b"{", **own)[0] == 400
    assert ask(server, "POST", "/look", b"[1]", **own)[0] == 400
    assert ask(server, "POST", "/other", b"{}", **own)[0] == 403
