"""Bodies of requests: read within bounds of size and time, and checked field by field."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...core.spec import brief, nearest
from .errors import ApiError

PATIENCE = 20.0  # seconds for a whole body
CLOSE = {"connection": "close"}  # since the rest of the body will not be read


class Body(BaseModel):
    """The fields of a request. A field that has no meaning here is refused, unless it changes no answer (`IGNORED`)."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=False)


IGNORED = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
"""Fields of OpenAI's requests that change no answer."""

Fields = TypeVar("Fields", bound=Body)


class HeldBodies:
    """ASGI middleware that bounds the bytes of the bodies of all requests that are read or answered at a time."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app, self.most, self.held = app, most, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = 0

        async def counted() -> Message:
            nonlocal own
            message = await receive()
            size = len(message.get("body", b""))
            if self.held + size > self.most:
                raise ApiError(
                    503,
                    f"the requests that are answered now have {self.most:,} bytes, which is the most; try again later",
                    headers={"retry-after": "1", **CLOSE},
                )
            own += size
            self.held += size
            return message

        try:
            await self.app(scope, counted, send)
        finally:
            self.held -= own


async def read(request: Request, most: int) -> bytes:
    """The body of a request of at most `most` bytes."""
    length = request.headers.get("content-length")
    if length is not None and length.isdigit() and int(length[:20]) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_large(most)
                parts.append(part)
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {PATIENCE:g} seconds", headers=CLOSE) from None
    except ClientDisconnect:
        raise ApiError(499, "the client hung up") from None
    return b"".join(parts)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"a request has at most {most:,} bytes", headers=CLOSE)


async def fields(request: Request, kind: type[Fields], most: int) -> Fields:
    """The fields of a JSON body. Raises `ApiError` in one sentence that names the field."""
    given = parsed(await read(request, most))
    if not isinstance(given, dict):
        raise ApiError(400, f"the body has to be a JSON object, not {brief(given)}")
    given = {name: value for name, value in given.items() if name not in IGNORED}
    unknown = next((name for name in given if name not in kind.model_fields), None)
    if unknown is not None:
        message = f"there is no field {brief(unknown)}; {nearest(unknown[:100], kind.model_fields)}"
        raise ApiError(400, message, unknown[:100])
    return checked(kind, given)


def checked(kind: type[Fields], given: Mapping[str, Any], names: Mapping[str, str] | None = None) -> Fields:
    """Return the fields as a pydantic model. Raises `ApiError` with a sentence that names the field.

    names: maps fields to their names in the request, if these differ.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field, *inner = map(str, first["loc"]) if first["loc"] else ("the body",)
        place = ".".join([(names or {}).get(field, field), *inner])
        message = first["msg"].removeprefix("Value error, ")
        message = f"{place}: {message[:1].lower()}{message[1:]}"[:500]
        raise ApiError(400, message, place if first["loc"] else None) from None


def parsed(body: bytes) -> Any:
    """A JSON body. Raises `ApiError` for what is none: also NaN, and nesting without end."""
    try:
        return json.loads(body.decode(), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise ApiError(400, "the body is not UTF-8") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {str(error)[:200]}") from None


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
