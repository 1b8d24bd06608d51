"""The ASGI application in this process: every endpoint answers, and what can't be answered is one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from server_events import events
from starlette.testclient import TestClient

from qkv.runs.inference.run import Run

LM = {"prompt": "the cat", "max_tokens": 2}


def test_health_readiness_and_metrics(client: TestClient, runs: dict[str, Run]) -> None:
    assert client.post("/v1/completions", json=LM | {"model": runs["lm"].title}).status_code == 200
    assert client.get("/health").json() == {"status": "ok", "crashes": 0} and client.get("/ready").status_code == 200
    text = client.get("/metrics").text
    from prometheus_client.parser import text_string_to_metric_families

    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["qkv_generated_tokens"].samples[0].value > 0
    assert families["qkv_first_token_seconds"].type == "histogram"


REFUSED: list[tuple[str, Any, int, str]] = [
    ("completions", b"{", 400, "is not JSON"),
    ("completions", b"\xff\xfe", 400, "not UTF-8"),
    ("completions", b"[" * 100_000, 400, "nested too deeply"),
    ("completions", b'{"temperature": NaN}', 400, "NaN is no JSON number"),
    ("completions", [], 400, "has to be a JSON object"),
    ("completions", {**LM, "prompt": 3}, 400, "prompt"),
    ("completions", {**LM, "prompt": []}, 400, "prompt"),
    ("completions", {**LM, "prompt": [[10**9]]}, 400, "the vocabulary is"),
    ("completions", {**LM, "promt": "a"}, 400, "did you mean 'prompt'"),
    ("completions", {**LM, "model": "gpt-4"}, 404, "there is no model 'gpt-4'"),
    ("completions", {**LM, "max_tokens": 20, "n": 120, "temperature": 1}, 400, "room for 2,000"),
    ("completions", {**LM, "prompt": "the cat " * 4000}, 400, "the model's context of"),
    ("completions", {**LM, "max_tokens": 1000}, 400, "the model's context has room for"),
    ("completions", {**LM, "stop": ["x"] * 10_000}, 400, "at most 16 stop strings"),
    ("completions", {**LM, "stop": ""}, 400, "stop string"),
    ("completions", {**LM, "suffix": "end"}, 400, "suffix is not served"),
    ("completions", {**LM, "best_of": 2, "n": 3}, 400, "give at least 3"),
    ("completions", {**LM, "best_of": 2, "stream": True}, 400, "leave out stream"),
    ("completions", {**LM, "temperature": -1}, 400, "temperature"),
    ("completions", {**LM, "logit_bias": {"999999": 1}}, 400, "logit_bias names the token 999999"),
    ("completions", {**LM, "prompt": "\ud800"}, 400, "half a character"),
    ("chat/completions", {"messages": [{"role": "user"}]}, 400, "message 0"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "only text"),
    ("chat/completions", {"messages": []}, 400, "messages"),
    ("embeddings", {"input": []}, 400, "input"),
    ("embeddings", {"input": [""] * 999}, 400, "at most 256"),
    ("embeddings", {"input": "a", "dimensions": 10**6}, 400, "dimensions"),
    ("translate", {"input": "a", "options": {"beams": 3}}, 400, "num_beams"),
    ("translate", {"input": "a", "options": {"self": 3}}, 400, "self"),
    ("translate", {"input": "a", "options": {"num_beams": 4, "max_new_tokens": 10**9}}, 400, "room for 2,000"),
    ("translate", {"input": ["a"] * 50, "options": {"num_samples": 99, "do_sample": True}}, 400, "fewer texts"),
    ("translate", {"input": "a " * 9000}, 400, "at most 8,192 are read at once"),
    ("loglikelihood", {"input": ["a", "b"], "targets": "c"}, 400, "one target for each text"),
    ("translate", {"input": "a", "\ud800": 3}, 400, r"there is no field '\ud800'"),
    ("translate", {"input": "a", "model": "\ud800"}, 404, r"there is no model '\ud800'"),
    ("responses", {"input": []}, 400, "input: list should have at least 1 item"),
    ("responses", {"input": "a", "text": {"format": 3}}, 400, "text.format: input should be"),
    ("classify", {"input": "a"}, 404, "does not serve"),
    ("predict", {"input": "/etc/passwd"}, 404, "does not serve"),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), REFUSED)
def test_what_can_not_be_answered_is_one_sentence(
    path: str, body: Any, status: int, message: str, client: TestClient, runs: dict[str, Run]
) -> None:
    kinds = {"chat/completions": "chat", "responses": "chat", "translate": "mt"}
    if isinstance(body, dict):
        body = {"model": runs[kinds.get(path, "lm")].title, **body}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post(f"/v1/{path}", content=content)
    error = answer.json()["error"]
    assert answer.status_code == status and message in error["message"], error
    assert "\n" not in error["message"] and "Traceback" not in answer.text and len(error["message"]) < 600


def test_what_the_model_refuses_at_its_beginning_is_the_clients_error(
    client: TestClient, runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError(f"{runs['lm'].name} reads 3 tokens at most")

    monkeypatch.setattr(type(runs["lm"].model), "start", refuse)
    message = "lm reads 3 tokens at most"
    answer = client.post("/v1/completions", json={"model": "lm", **LM})
    assert answer.status_code == 400 and answer.json()["error"]["message"] == message
    (said,) = events(client.post("/v1/completions", json={"model": "lm", **LM, "stream": True}).text)
    assert said["error"] == answer.json()["error"]
