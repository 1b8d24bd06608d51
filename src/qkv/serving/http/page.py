"""The pages at `/` and `/docs`: their files, which come with the package."""

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
    "docs.html": "text/html; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
}
PAGES = {"page.html": "/", "docs.html": "/docs"}


def page_routes() -> list[Route]:
    return [Route(PAGES.get(name, f"/{name}"), _file, methods=["GET"], name=name) for name in KINDS]


async def _file(request: Request) -> Response:
    path = request.url.path
    name = next((name for name, page in PAGES.items() if page == path), path.removeprefix("/"))
    return Response((FILES / name).read_bytes(), media_type=KINDS[name])
