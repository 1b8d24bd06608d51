"""Bodies of requests: bounds of their size, and fields that are missing, unknown or ignored."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request

from qkv.serving.http import bodies
from qkv.serving.http.bodies import Body
from qkv.serving.http.errors import ApiError


class Asked(Body):
    number: int
    text: str = ""


def request(*parts: bytes, length: int | None = None) -> Request:
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting.append({"type": "http.request", "body": b"", "more_body": False})
    headers = [] if length is None else [(b"content-length", str(length).encode())]

    async def receive() -> Any:
        return waiting.pop(0)

    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}, receive)


def read(*parts: bytes, most: int = 100) -> Asked:
    return asyncio.run(bodies.fields(request(*parts), Asked, most))


def test_fields_are_read_from_parts_and_those_without_an_effect_are_ignored() -> None:
    whole = json.dumps({"number": 3, "text": "é", "user": "me"}).encode()
    assert read(whole[:9], whole[9:]) == Asked(number=3, text="é")


@pytest.mark.parametrize(
    ("parts", "status", "message"),
    [
        ([b"[]"], 400, "has to be a JSON object"),
        ([b'{"number": "x"}'], 400, "number: input should be a valid integer"),
        ([b"{}"], 400, "number: field required"),
        ([b'{"numbr": 3}'], 400, "did you mean 'number'"),
        ([b'{"number": Infinity}'], 400, "Infinity is no JSON number"),
        ([b"\xff"], 400, "not UTF-8"),
        ([b" " * 60, b" " * 60], 413, "at most 100 bytes"),
    ],
)
def test_a_bad_body_is_one_sentence(parts: list[bytes], status: int, message: str) -> None:
    with pytest.raises(ApiError, match=message) as told:
        read(*parts)
    assert told.value.status == status


def test_all_bodies_together_have_a_most_of_bytes_until_they_are_answered() -> None:
    statuses: list[int] = []
    message = {"type": "http.request", "body": b" " * 60, "more_body": False}

    async def receive() -> Any:
        return message

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if len(statuses) < 2:
            statuses.append(200)
            with pytest.raises(ApiError, match="100 bytes") as told:  # of another request, while this one is answered
                await held(scope, receive_one, send)
            statuses.append(told.value.status)

    receive_one = receive
    held = bodies.HeldBodies(app, 100)
    asyncio.run(held({"type": "http"}, receive, receive))
    asyncio.run(held({"type": "http"}, receive, receive))
    assert statuses == [200, 503] and held.held == 0


def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    with pytest.raises(ApiError, match="at most 10 bytes"):
        asyncio.run(bodies.read(request(b"", length=11), 10))
