"""The HTTP server: uvicorn with a timeout for idle connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

SILENCE = 20.0  # seconds until a connection has sent the head of a request
IDLE = 15  # seconds between the requests of a connection
HEAD = 64 << 10  # bytes of a request's head


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request has not begun in time, or is sent too slowly to begin."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._heard()
        elif self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(SILENCE, self._close)

    def _heard(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Calls `say` with its port once it listens."""

    def __init__(self, config: uvicorn.Config, say: Callable[[int], None]) -> None:
        super().__init__(config)
        self.say = say

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.say(self.servers[0].sockets[0].getsockname()[1])


def serve(
    app: ASGIApp, host: str, port: int, say: Callable[[int], None], most_connections: int = 1024, drain: int = 60
) -> None:
    """Answer requests until SIGINT or SIGTERM; then finish what was begun, for at most `drain` seconds.

    `say` is called with the port once requests are accepted. Raises ValueError if the port can't be listened on.
    """
    config = uvicorn.Config(
        app,
        host,
        port,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=drain,
        h11_max_incomplete_event_size=HEAD,
        limit_concurrency=most_connections,
        backlog=256,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets that are named as TCP. Without it, the second part of an answer waits 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise ValueError(
                f"can't listen on {host}, port {port} ({error.strerror}); choose others: --port 0"
            ) from None
        _Server(config, say).run([listening])
