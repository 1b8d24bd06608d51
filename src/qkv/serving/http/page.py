"""The page at `/`: its files, which come with the package."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FILES = Path(__file__).parents[1] / "page"
KINDS = {
    "page.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}


def page_routes() -> list[Route]:
    return [Route("/" if name.endswith("html") else f"/{name}", _file, methods=["GET"], name=name) for name in KINDS]


async def _file(request: Request) -> Response:
    name = request.url.path.removeprefix("/") or "page.html"
    return Response((FILES / name).read_bytes(), media_type=KINDS[name])
