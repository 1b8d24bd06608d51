"""A live page on this machine alone: an HTTP server on the loopback address that answers only its page's requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
MOST_BYTES = 1_000_000  # of a request

Answer = Callable[[dict[str, Any]], str]


class LiveServer(ThreadingHTTPServer):
    """Serves `page()` at `/`, and `answer(request)` as JSON at `/look` for requests that the page posts.

    It listens on the loopback address only. Requests that name another host (DNS rebinding), or that come from another
    site's page, are refused. Requests are answered one at a time; a ValueError of `answer` is the page's error message.
    """

    daemon_threads = True

    def __init__(self, page: Callable[[], str], answer: Answer, port: int = 0) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.page, self.answer = page, answer
        self.one_at_a_time = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/"

    def is_own(self, host: str | None) -> bool:
        """Whether a host with a port is this server."""
        return host in (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}")

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing about connections that a browser closed."""


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "qkv", ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        if not self.server.is_own(self.headers.get("Host")):
            self._refuse("this page is for this machine alone; open it at its own address")
        elif urlsplit(self.path).path != "/":
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is nothing here")
        else:
            with self.server.one_at_a_time:
                page = self.server.page()
            self._send(HTTPStatus.OK, "text/html", page)

    def do_POST(self) -> None:
        origin = urlsplit(self.headers.get("Origin") or "")
        own = origin.scheme == "http" and self.server.is_own(origin.netloc)
        if not self.server.is_own(self.headers.get("Host")) or not own:
            self._refuse("only the page of this server may ask it")
            return
        kind = (self.headers.get("Content-Type") or "").split(";")[0].strip()
        length = self.headers.get("Content-Length") or ""
        if self.path != "/look" or kind != "application/json" or not length.isdigit() or int(length) > MOST_BYTES:
            self._refuse("this is no request of the page")
            return
        try:
            request = json.loads(self.rfile.read(int(length)))
            if not isinstance(request, dict):
                raise ValueError("a request is a JSON object")
            with self.server.one_at_a_time:
                body = self.server.answer(request)
        except (ValueError, RecursionError) as error:
            self._send(HTTPStatus.BAD_REQUEST, "application/json", json.dumps({"error": str(error)}))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "application/json", json.dumps({"error": message}))
        else:
            self._send(HTTPStatus.OK, "application/json", body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing for each request."""

    def _refuse(self, why: str) -> None:
        self.close_connection = True
        self._send(HTTPStatus.FORBIDDEN, "application/json", json.dumps({"error": why}))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
