"""The pages that the server shows."""

from __future__ import annotations

import re

from starlette.testclient import TestClient

from qkv.serving.http.page import FILES
from qkv.serving.http.served import ENDPOINTS


def test_the_page_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200 and "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["content-type"].startswith("text/html")
    for name in ("/page.css", "/page.js"):
        assert f'="{name}"' in page.text
        own = client.get(name).text
        assert own and not [url for url in re.findall(r"https?://[^\s\"'`)]+", own) if "www.w3.org/2000/svg" not in url]
    endpoints = set(re.findall(r'^  "(/v1/[a-z/]+)": \{', client.get("/page.js").text, re.MULTILINE))
    assert endpoints == {each for paths in ENDPOINTS.values() for each in paths} - {"/v1/score", "/v1/responses"} | {
        "/v1/tag"
    }


def test_the_page_of_the_description_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    for file in ("docs.html", "docs.js"):
        assert not re.findall(r"https?://", (FILES / file).read_text(encoding="utf-8"))
    assert client.get("/docs.js").status_code == 200
