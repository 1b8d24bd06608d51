"""Errors in the form that OpenAI's clients read: their kinds by status, and one sentence without a path."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from qkv.serving.http.errors import ApiError, answer

MODELS = SimpleNamespace(without_paths=lambda text: text.replace("/home/me", "lm"))
APP = SimpleNamespace(state=SimpleNamespace(models=MODELS))
REQUEST = Request({"type": "http", "method": "PUT", "path": "/v1/nothing", "headers": [], "app": APP})


@pytest.mark.parametrize(
    ("error", "status", "kind", "message"),
    [
        (ApiError(401, "no key"), 401, "authentication_error", "no key"),
        (ApiError(413, "too large"), 413, "invalid_request_error", "too large"),
        (ApiError(429, "later"), 429, "rate_limit_error", "later"),
        (ApiError(503, "later"), 503, "server_error", "later"),
        (HTTPException(404), 404, "not_found_error", "there is no /v1/nothing here"),
        (HTTPException(405), 405, "invalid_request_error", "PUT is not allowed here"),
        (ValueError("/home/me reads texts"), 400, "invalid_request_error", "lm reads texts"),
        (KeyError("/home/me"), 500, "server_error", "the server failed at this request; its log says why"),
    ],
)
def test_errors_have_their_kind(error: Exception, status: int, kind: str, message: str) -> None:
    response = answer(REQUEST, error)
    assert response.status_code == status
    expected: dict[str, Any] = {"message": message, "type": kind, "param": None, "code": status}
    assert json.loads(bytes(response.body))["error"] == expected
