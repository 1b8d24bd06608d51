"""The server's socket: a port that is taken is one sentence, and the port is told once requests are accepted."""

from __future__ import annotations

import socket

import pytest

from qkv.serving.http.server import serve


async def nothing(scope: object, receive: object, send: object) -> None:
    raise AssertionError("no request is sent")


def test_a_port_that_is_taken_is_one_sentence() -> None:
    told: list[int] = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=rf"can't listen on 127\.0\.0\.1, port {port} .*choose others: --port 0"):
            serve(nothing, "127.0.0.1", port, told.append)  # type: ignore[arg-type]
    assert not told
