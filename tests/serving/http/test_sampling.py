"""Options of sampling, as requests give them."""

from __future__ import annotations

import json

from starlette.testclient import TestClient

from qkv.runs.inference.run import Run


def test_outputs_follow_a_json_schema_and_impossible_forms_are_refused(
    client: TestClient, runs: dict[str, Run]
) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}
    body = {"model": runs["en"].title, "prompt": "He said", "max_tokens": 60, "seed": 1, "response_format": form}
    (choice,) = client.post("/v1/completions", json=body).json()["choices"]
    assert isinstance(json.loads(choice["text"])["n"], int) and choice["finish_reason"] == "stop"
    itself = {"type": "json_schema", "json_schema": {"name": "itself", "schema": {"$ref": "#"}}}
    for wrong in ({"type": "xml"}, {"type": "json_schema"}, {"type": "regex", "regex": "("}, itself):
        answer = client.post("/v1/completions", json=body | {"response_format": wrong})
        assert answer.status_code == 400 and "\n" not in answer.json()["error"]["message"]
