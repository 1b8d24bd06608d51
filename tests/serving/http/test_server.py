"""The server's socket: a port that is taken is one sentence, and what is sent does not wait."""

from __future__ import annotations

import asyncio
import socket

import pytest

from qkv.serving.http import server
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


def test_a_second_part_of_an_answer_does_not_wait_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each answer on a connection that stays open takes 40 ms, until the client acknowledges its head."""
    at_once: list[int] = []

    class Watched(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connection = transport.get_extra_info("socket")
            at_once.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def accept(listening: socket.socket) -> None:
        await asyncio.get_running_loop().create_server(Watched, sock=listening)
        reader, _ = await asyncio.open_connection(*listening.getsockname())
        await reader.read()

    monkeypatch.setattr(server._Server, "run", lambda self, sockets: asyncio.run(accept(sockets[0])))
    serve(nothing, "127.0.0.1", 0, lambda port: None)  # type: ignore[arg-type]
    assert at_once and all(at_once)
