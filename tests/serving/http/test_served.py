"""The models of a server and what each answers."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

import qkv
import qkv.serve
from qkv.runs.inference.run import Run


def test_models_name_what_they_do(client: TestClient, runs: dict[str, Run]) -> None:
    found = {one["id"]: one["endpoints"] for one in client.get("/v1/models").json()["data"]}
    assert list(found) == [run.title for run in runs.values()]
    assert "/v1/completions" in found[runs["lm"].title] and "/v1/translate" in found[runs["mt"].title]
    assert "/v1/chat/completions" in found[runs["chat"].title] and "/v1/completions" not in found[runs["mt"].title]
    assert client.get(f"/v1/models/{runs['lm'].title}").json()["max_model_len"] == runs["lm"].model.max_positions
    assert client.get("/v1/models/other").status_code == 404


LM = {"prompt": "the cat", "max_tokens": 2}


def test_a_request_without_a_model_takes_the_only_one_that_can(client: TestClient) -> None:
    assert client.post("/v1/translate", json={"input": "a"}).status_code == 200
    answer = client.post("/v1/completions", json=LM)
    assert answer.status_code == 400 and "name the model" in answer.json()["error"]["message"]
    assert client.get("/nowhere").status_code == 404 and client.put("/health").status_code == 405


def test_two_runs_of_one_name_are_refused(runs: dict[str, Run]) -> None:
    with pytest.raises(ValueError, match="two runs are called"):
        qkv.serve.app([runs["mt"], runs["mt"]])
