"""Who is answered: hosts, origins, keys, rates and sizes of bodies."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

import qkv
import qkv.serve
from qkv.runs.inference.run import Run


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("host", "evil.example"),
        ("host", "127.0.0.1.evil.example"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ],
)
def test_pages_of_other_sites_are_refused(header: str, value: str, client: TestClient) -> None:
    answer = client.post("/v1/translate", json={"input": "a"}, headers={header: value})
    assert answer.status_code == 403 and answer.json()["error"]["message"]
    own = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
    assert client.post("/v1/translate", json={"input": "a"}, headers=own).status_code == 200


def test_keys_rates_and_large_bodies(runs: dict[str, Run]) -> None:
    key = "0123456789abcdef-key"
    app = qkv.serve.app(runs["mt"], keys=[key], requests_per_minute=3)
    with TestClient(app, "http://localhost") as client:
        for wrong in ({}, {"authorization": "Bearer no"}, {"authorization": key}):
            answer = client.get("/v1/models", headers=wrong)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        right = {"authorization": f"Bearer {key}"}
        assert client.get("/health").status_code == 200
        answer = client.post("/v1/translate", content=b" " * (9 << 20), headers=right)
        assert answer.status_code == 413 and "bytes" in answer.json()["error"]["message"]
        for number in range(3):
            assert client.get(f"/path{number}").status_code == 401
        statuses = [client.get("/v1/models", headers=right).status_code for _ in range(4)]
        assert statuses == [200, 200, 429, 429]
    counted = app.state.models.engine.statistics.requests
    assert counted["other", 401] == 3
    assert {path for path, _ in counted} == {"/health", "/v1/models", "/v1/translate", "other"}


@pytest.mark.parametrize(("header", "value"), [("host", "[::1"), ("origin", "http://[::1")])
def test_an_address_that_is_none_is_refused(header: str, value: str, client: TestClient) -> None:
    answer = client.get("/health", headers={header: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "Host and Origin have to be addresses; one of them is none"
