"""What clients see of a crash: 503 in OpenAI's shape, whole and streamed; and `/health`, `/ready` and `/metrics`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import qkv
import qkv.serve
from qkv.serving.engine import crashes
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Engine

ASKED = {"prompt": "the cat", "max_tokens": 5}


@pytest.fixture
def client(trained_lm: Path) -> Iterator[TestClient]:
    app = qkv.serve.app(qkv.load(trained_lm, device="cpu"))
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def test_a_crash_is_told_and_the_next_request_is_answered(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    want = client.post("/v1/completions", json=ASKED).json()["choices"]
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "_logits", lambda self, rows: 1 / 0)
        answer = client.post("/v1/completions", json=ASKED)
        assert answer.status_code == 503 and answer.json()["error"]["type"] == "server_error"
        assert "started again" in answer.json()["error"]["message"] and answer.headers["retry-after"] == "1"
        streamed = client.post("/v1/completions", json=ASKED | {"stream": True}).text.split("\n\n")
        assert (
            json.loads(streamed[-3].removeprefix("data: "))["error"]["code"] == 503 and streamed[-2] == "data: [DONE]"
        )
    assert client.post("/v1/completions", json=ASKED).json()["choices"] == want
    assert client.get("/health").json() == {"status": "ok", "crashes": 2} and client.get("/ready").status_code == 200
    assert "qkv_engine_crashes_total 2\n" in client.get("/metrics").text


def test_jobs_are_told_too_and_after_three_crashes_the_server_is_not_ready(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_do_jobs", lambda self: 1 / 0)
        for _ in range(crashes.MOST):
            answer = client.post("/v1/embeddings", json={"input": "a"})
            assert answer.status_code == 503 and "started again" in answer.json()["error"]["message"]
    for stream in (False, True):
        answer = client.post("/v1/completions", json=ASKED | {"stream": stream})
        assert answer.status_code == 503 and "crashed repeatedly" in answer.json()["error"]["message"]
        assert 50 <= int(answer.headers["retry-after"]) <= 60
    for path in ("/health", "/ready"):
        found = client.get(path)
        assert found.status_code == 503 and found.json()["status"] == "crashing"
    assert "qkv_engine_up 0.0\n" in client.get("/metrics").text


def test_a_turn_that_does_not_end_is_told(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "turn_seconds", 601.0)
    assert client.get("/health").json()["status"] == "stuck" and client.get("/health").status_code == 503


def test_a_full_queue_is_told_before_a_stream_begins(client: TestClient) -> None:
    client.app.state.models.engine.most_waiting = 0  # type: ignore[attr-defined]
    for body in (ASKED, ASKED | {"stream": True}):
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == 429 and "wait already" in answer.json()["error"]["message"]
