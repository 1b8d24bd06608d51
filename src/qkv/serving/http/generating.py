"""What completions and chats share: answers from the engine, all at once or as server-sent events."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ..engine.continuation import Ending, Event, NewText, Work
from .errors import ApiError
from .sampling import SamplingFields
from .served import Models, Served

Result = TypeVar("Result")
Choice = dict[str, Any]


async def until_hung_up(request: Request, result: Awaitable[Result]) -> Result:
    """A result, or `ApiError` as soon as the client hangs up; the computation is given up then."""
    wanted = asyncio.ensure_future(result)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({wanted, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            raise ApiError(499, "the client hung up")
        return wanted.result()
    finally:
        for task in (wanted, gone):
            task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def usage(works: Sequence[Work], new: int) -> dict[str, Any]:
    prompt = sum(len(work.prompt) for work in works)
    cached = sum(work.reused for work in works)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "total_tokens": prompt + new,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


class CompletionAnswer:
    """The answer to a request for completions: `choice` makes one of an ending, `delta` one of a piece.

    kept: how many of the `n` continuations of each prompt are in the answer, the likeliest first; by default all.
    """

    def __init__(
        self,
        models: Models,
        served: Served,
        works: Sequence[Work],
        asked: SamplingFields,
        kind: str,
        choice: Callable[[int, Work, Ending], Choice],
        delta: Callable[[int, Work, NewText | Ending], Choice],
        opening: Callable[[int], Choice] | None = None,
        kept: int | None = None,
    ) -> None:
        self.models, self.served, self.works, self.asked = models, served, works, asked
        self.kind, self.choice, self.delta, self.opening = kind, choice, delta, opening
        self.kept = asked.n if kept is None else kept
        prefix = "chatcmpl" if kind.startswith("chat") else "cmpl"
        self.about = {
            "id": f"{prefix}-{uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": served.name,
        }

    def _copies(self, number: int, event: Event) -> list[int]:
        """The indices of the choices that an event is of: of all n, if nothing is drawn."""
        work, n = self.works[number], self.asked.n
        return [number * n + event.sample] if work.count == n else list(range(number * n, (number + 1) * n))

    async def whole(self) -> Response:
        endings: dict[int, tuple[Work, Ending]] = {}
        new = 0
        async for number, event in self.models.events(self.served, self.works):
            assert isinstance(event, Ending)
            new += len(event.tokens)
            for index in self._copies(number, event):
                endings[index] = self.works[number], event
        choices = [self.choice(index, *one) for index, one in enumerate(self._likeliest(endings))]
        return JSONResponse({**self.about, "choices": choices, "usage": usage(self.works, new)})

    def _likeliest(self, endings: dict[int, tuple[Work, Ending]]) -> list[tuple[Work, Ending]]:
        """The endings in their order; of each prompt, the likeliest ones if not all are kept."""
        n, found = self.asked.n, [endings[index] for index in sorted(endings)]
        if self.kept == n:
            return found
        groups = (found[start : start + n] for start in range(0, len(found), n))
        return [one for group in groups for one in sorted(group, key=lambda each: -_mean(each[1]))[: self.kept]]

    async def chunks(self) -> AsyncIterator[bytes]:
        new, kind = 0, {"object": f"{self.kind}.chunk" if self.kind.startswith("chat") else self.kind}
        try:
            if self.opening is not None:
                for index in range(len(self.works) * self.asked.n):
                    yield sent({**self.about, **kind, "choices": [self.opening(index)]})
            async for number, event in self.models.events(self.served, self.works):
                new += len(event.tokens) if isinstance(event, Ending) else 0
                choices = [self.delta(index, self.works[number], event) for index in self._copies(number, event)]
                for choice in filter(_says_something, choices):
                    yield sent({**self.about, **kind, "choices": [choice]})
            if self.asked.includes_usage:
                yield sent({**self.about, **kind, "choices": [], "usage": usage(self.works, new)})
        except ApiError as error:
            yield sent(error.content)
        yield b"data: [DONE]\n\n"

    async def response(self, request: Request) -> Response:
        if self.asked.stream:
            self._check_room()
            headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
            return StreamingResponse(self.chunks(), media_type="text/event-stream", headers=headers)
        return await until_hung_up(request, self.whole())

    def _check_room(self) -> None:
        """Refuse with a status what could only be refused in the stream later."""
        for work in self.works:
            self.models.check_room(self.served, work)


def _says_something(choice: Choice) -> bool:
    return choice.get("delta") != {} or choice["finish_reason"] is not None or choice["logprobs"] is not None


def _mean(ending: Ending) -> float:
    """The mean log-probability of a continuation's tokens."""
    found = [token.log_prob for token in ending.tokens if token.log_prob is not None]
    return sum(found) / len(found) if found else -math.inf


def sent(content: object) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n".encode()


def reason(event: Ending) -> str:
    return "length" if event.outcome == "length" else "stop"
