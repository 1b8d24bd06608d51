"""Answer HTTP requests with a run: `python serve.py runs/localise`, then POST {"texts": ["<de> 3 days ago"]} to port 8000.

Each connection has a thread, and is closed after ten silent seconds. The model computes one request at a time, all of its
texts in one batch. The server listens on this machine alone, and refuses what a browser sends for a web page: any page that
you visit can send requests to your machine. The browser names the page's site in `Origin`, or, if the site's name leads to
your machine, in `Host`.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import qkv

LARGEST = 1_000_000  # bytes of a request
HOSTS = ("127.0.0.1", "localhost")


class Handler(BaseHTTPRequestHandler):
    run: qkv.Run
    lock: threading.Lock  # of the model
    timeout = 10.0  # seconds that a connection may be silent

    def do_POST(self) -> None:
        port = self.connection.getsockname()[1]
        if self.headers.get("Host") not in [*HOSTS, *(f"{host}:{port}" for host in HOSTS)]:
            self.answer(403, {"error": f"the Host has to be {HOSTS[0]}:{port}"})
            return
        if self.headers.get("Origin") is not None or self.headers.get("Sec-Fetch-Site") is not None:
            self.answer(403, {"error": "requests of web pages are not answered"})
            return
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            length = -1
        if length < 0:
            self.answer(400, {"error": "Content-Length has to be a number of bytes"})
            return
        if length > LARGEST:
            self.answer(413, {"error": f"a request has at most {LARGEST:,} bytes"})
            return
        try:
            request = json.loads(self.rfile.read(length))
            if not isinstance(request, dict) or not isinstance(request.get("texts"), list):
                raise ValueError('a request is {"texts": ["…"], "options": {}}')
            with self.lock:
                answers = self.run.generate(request["texts"], **request.get("options", {}))
        except TimeoutError:
            self.close_connection = True
        except (ValueError, TypeError) as error:
            self.answer(400, {"error": str(error)})
        else:
            self.answer(200, {"answers": answers})

    def answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True  # an idle connection keeps no process alive


def server(directory: str, port: int = 8000, timeout: float = 10.0) -> Server:
    """A server on 127.0.0.1, with the model loaded once; port 0 is any free one."""
    fields = {"run": qkv.load(directory), "lock": threading.Lock(), "timeout": timeout}
    return Server(("127.0.0.1", port), type("RunHandler", (Handler,), fields))


if __name__ == "__main__":
    server(sys.argv[1]).serve_forever()
