"""Answer HTTP requests with a run: `python serve.py runs/localise`, then POST {"texts": ["<de> 3 days ago"]} to port 8000.

One request at a time is computed, and the texts of a request form a batch. It listens on this machine alone.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import qkv

LARGEST = 1_000_000  # bytes of a request


class Handler(BaseHTTPRequestHandler):
    run: qkv.Run

    def do_POST(self) -> None:
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
            answers = self.run.generate(request["texts"], **request.get("options", {}))
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


def server(directory: str, port: int = 8000) -> HTTPServer:
    """A server on 127.0.0.1, with the model loaded once; port 0 is any free one."""
    run = qkv.load(directory)
    return HTTPServer(("127.0.0.1", port), type("RunHandler", (Handler,), {"run": run}))


if __name__ == "__main__":
    server(sys.argv[1]).serve_forever()
