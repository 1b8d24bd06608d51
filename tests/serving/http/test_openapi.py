"""`/openapi.json`: every example is answered by what it describes, and nothing that is served is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import run_tiny
from starlette.testclient import TestClient

import qkv.serve
from qkv.runs.inference.run import load
from qkv.serving.http.app import LOADING, ROUTES
from qkv.serving.http.openapi import OPERATIONS


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, trained: Path, trained_lm: Path) -> Iterator[TestClient]:
    assistant = run_tiny.assistant(tmp_path_factory.mktemp("described"))
    app = qkv.serve.app([load(path, device="cpu") for path in (trained_lm, trained, assistant)])
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def test_every_example_is_answered_as_described(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    tried = set()
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            content = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            example = content.get("example")
            if method == "post" and example is None:
                assert not about["x-models"], path
                continue
            if example is not None:
                jsonschema.validate({k: v for k, v in example.items() if k != "model"}, content["schema"])
            answer = client.request(method, path, **({"json": example} if example is not None else {}))
            assert answer.status_code == 200, (path, answer.text)
            jsonschema.Draft202012Validator.check_schema(content.get("schema", {}))
            (media, described), *_ = about["responses"]["200"]["content"].items()
            assert answer.headers["content-type"].startswith(media)
            jsonschema.validate(answer.json() if media.endswith("json") else answer.text, described["schema"])
            tried.add(path)
    assert {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/translate"} < tried
    assert {"/v1/rerank", "/v1/score", "/v1/loglikelihood", "/health", "/ready", "/metrics", "/v1/models"} < tried


def test_errors_are_as_described(client: TestClient) -> None:
    error = client.get("/openapi.json").json()["components"]["schemas"]["Error"]
    for answer in (client.post("/v1/completions", json={"model": "x"}), client.get("/nowhere")):
        jsonschema.validate(answer.json(), error)


def test_every_endpoint_is_described() -> None:
    served = {route.path for route in (*ROUTES, *LOADING)} - {"/openapi.json", "/v1/models/{name:path}"}
    assert set(OPERATIONS) == served


def test_references_within_the_document_lead_somewhere(client: TestClient) -> None:
    response = client.get("/openapi.json")

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    found = set(references(response.json()))
    assert found
    for reference in found:
        at = response.json()
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]
