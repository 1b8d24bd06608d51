"""`/v1/responses`: replies by OpenAI's newer API. Nothing is stored: earlier turns come with the request."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any, Literal
from uuid import uuid4

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ..engine.continuation import Ending, Work
from . import bodies
from .bodies import Body
from .chat import ChatFields, work_of
from .errors import ApiError
from .generating import until_hung_up
from .served import Models, Served

PATH = "/v1/chat/completions"  # which a run has to have
_TEXTS = ("input_text", "output_text", "text")


class ResponseFields(Body):
    """A request for a response. `input` is a text, or messages."""

    model: str | None = None
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    stream: bool = False
    text: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["disabled"] | None = None
    previous_response_id: None = None

    def as_chat(self) -> ChatFields:
        """The same as a request for a chat. Raises ValueError for an input of another kind."""
        if self.tools and self.tool_choice != "none":
            raise ValueError("tools are served by /v1/chat/completions; ask there, or leave them out")
        given = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
        messages = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        messages += [_message(item) for item in given]
        form = (self.text or {}).get("format")
        if isinstance(form, dict) and form.get("type") == "json_schema":
            form = {"type": "json_schema", "json_schema": form}
        same = {"temperature": self.temperature, "top_p": self.top_p, "stream": self.stream}
        chat = same | {"messages": messages, "max_tokens": self.max_output_tokens, "response_format": form}
        return bodies.checked(ChatFields, chat, {"messages": "input", "response_format": "text.format"})


def _message(item: dict[str, Any]) -> dict[str, Any]:
    kind = item.get("type", "message")
    if kind != "message":
        raise ValueError(f"input has an item of the type {str(kind)[:40]!r}, and only messages are served")
    content = item.get("content")
    if isinstance(content, list):
        content = [
            {"type": "text", "text": part.get("text")}
            if isinstance(part, dict) and part.get("type") in _TEXTS
            else part
            for part in content
        ]
    return {"role": item.get("role"), "content": content}


async def responses(request: Request) -> Response:
    models: Models = request.app.state.models
    asked = await bodies.fields(request, ResponseFields, models.limits.body)
    served = models.find(asked.model, PATH)
    work = await asyncio.to_thread(work_of, served, asked.as_chat(), models.limits)
    made = _Made(served, asked, work)
    if not asked.stream:
        return JSONResponse(await until_hung_up(request, made.whole(models)))
    models.check_room(served, work)
    return StreamingResponse(made.events(models), media_type="text/event-stream", headers={"cache-control": "no-cache"})


class _Made:
    """A response while it is made."""

    def __init__(self, served: Served, asked: ResponseFields, work: Work) -> None:
        self.served, self.asked, self.work = served, asked, work
        self.id, self.message, self.created = f"resp_{uuid4().hex}", f"msg_{uuid4().hex}", int(time.time())

    def response(self, status: str, ending: Ending | None = None) -> dict[str, Any]:
        cut = status == "incomplete"
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": self.asked.instructions,
            "max_output_tokens": self.asked.max_output_tokens,
            "metadata": {},
            "model": self.served.name,
            "output": [] if ending is None else [self._item(ending.text, status)],
            "parallel_tool_calls": False,
            "temperature": self.asked.temperature,
            "top_p": self.asked.top_p,
            "tool_choice": "none",
            "tools": [],
            "usage": None if ending is None else self._usage(ending),
        }

    def _usage(self, ending: Ending) -> dict[str, Any]:
        read, written = len(self.work.prompt), len(ending.tokens)
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": self.work.reused},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        }

    def _item(self, text: str | None, status: str) -> dict[str, Any]:
        content = [] if text is None else [_part(text)]
        return {"type": "message", "id": self.message, "status": status, "role": "assistant", "content": content}

    async def whole(self, models: Models) -> dict[str, Any]:
        async for _, event in models.events(self.served, [self.work]):
            if isinstance(event, Ending):
                return self.response(_status(event), event)
        raise AssertionError("every request has an ending")

    async def events(self, models: Models) -> AsyncIterator[bytes]:
        """The server-sent events of a streamed response."""
        place = {"item_id": self.message, "output_index": 0, "content_index": 0}
        yield self._sent("response.created", response=self.response("in_progress"))
        yield self._sent("response.output_item.added", output_index=0, item=self._item(None, "in_progress"))
        yield self._sent("response.content_part.added", **place, part=_part(""))
        try:
            async for _, event in models.events(self.served, [self.work]):
                if not isinstance(event, Ending):
                    yield self._sent("response.output_text.delta", **place, delta=event.text, logprobs=[])
                    continue
                status = _status(event)
                yield self._sent("response.output_text.done", **place, text=event.text, logprobs=[])
                yield self._sent("response.content_part.done", **place, part=_part(event.text))
                yield self._sent("response.output_item.done", output_index=0, item=self._item(event.text, status))
                yield self._sent(f"response.{status}", response=self.response(status, event))
        except ApiError as error:
            yield self._sent("error", message=error.message, code=str(error.status), param=error.param)

    _number = -1

    def _sent(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        data = json.dumps({"type": kind, "sequence_number": self._number, **fields}, ensure_ascii=False)
        return f"event: {kind}\ndata: {data}\n\n".encode()


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(ending: Ending) -> str:
    return "incomplete" if ending.outcome == "length" else "completed"
