"""`/v1/chat/completions`: replies to conversations, as OpenAI's clients ask for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..engine.continuation import ChosenToken, Ending, NewText, Work
from . import bodies
from .completions import token_text
from .errors import ApiError
from .generating import Choice, CompletionAnswer, reason
from .sampling import SamplingFields, checked_texts
from .served import Models, RequestLimits, Served, nobody

PATH = "/v1/chat/completions"


class ChatFields(SamplingFields):
    """A request for replies to a conversation."""

    messages: list[dict[str, Any]] = Field(min_length=1, max_length=4096)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    max_completion_tokens: int | None = Field(None, ge=1)
    tools: list[dict[str, Any]] | None = Field(None, max_length=128)
    tool_choice: Literal["none", "auto"] | None = None


async def chat_completions(request: Request) -> Response:
    models: Models = request.app.state.models
    asked = await bodies.fields(request, ChatFields, models.limits.body)
    served = models.find(asked.model, PATH)
    if asked.max_completion_tokens is not None:
        asked.max_tokens = asked.max_completion_tokens
    if asked.max_tokens == 0:
        raise ApiError(400, "max_tokens is 0, and a reply has at least one token", "max_tokens")
    work = await asyncio.to_thread(work_of, served, asked, models.limits)
    writer = _Writer(served, asked)
    answer = CompletionAnswer(
        *(models, served, [work], asked, "chat.completion", writer.choice, writer.delta),
        opening=lambda index: {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        },
    )
    return await answer.response(request)


def work_of(served: Served, asked: ChatFields, limits: RequestLimits) -> Work:
    """The request of a conversation. Raises ValueError for one that the template or the model can't read."""
    run = replace(served.run, task="answer", grammar=asked.grammar)
    texts = [part for message in asked.messages for part in _texts(message.get("content"))]
    if texts:
        checked_texts(texts, replace(limits, texts=limits.body), "messages")
    template = run.words.chat
    tools = None if asked.tool_choice == "none" else asked.tools
    prompt = template.prompt(asked.messages, tools)
    top = (asked.top_logprobs or 0) if asked.logprobs or asked.top_logprobs is not None else None
    work = Work(
        *(run, prompt, asked.settings(run.generation), nobody),
        stop=asked.stops(limits),
        ends=template.ends,
        likeliest=top,
        streams=asked.stream,
    )
    work.processors = asked.processors(run.model.vocab_size, len(work.prompt))
    return work


def _texts(content: Any) -> list[str]:
    """The texts of a message. Raises ValueError for a part of another kind."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    other = next((p for p in parts if not isinstance(p, dict) or p.get("type") != "text"), None)
    if other is not None:
        kind = other.get("type") if isinstance(other, dict) else other
        raise ValueError(
            f"a message has a part of the type {str(kind)[:40]!r}, and only text is served in conversations"
        )
    return [str(part.get("text", "")) for part in parts]


class _Writer:
    """Writes choices in OpenAI's form."""

    def __init__(self, served: Served, asked: ChatFields) -> None:
        self.served, self.asked = served, asked

    def choice(self, index: int, work: Work, event: Ending) -> Choice:
        return {
            "index": index,
            "message": {"role": "assistant", "content": event.text, "refusal": None},
            "logprobs": self._log_probs(event.tokens),
            "finish_reason": reason(event),
        }

    def delta(self, index: int, work: Work, event: NewText | Ending) -> Choice:
        if isinstance(event, Ending):
            return {"index": index, "delta": {}, "logprobs": None, "finish_reason": reason(event)}
        return {
            "index": index,
            "delta": {"content": event.text},
            "logprobs": self._log_probs(event.tokens),
            "finish_reason": None,
        }

    def _log_probs(self, tokens: tuple[ChosenToken, ...]) -> dict[str, Any] | None:
        if not self.asked.logprobs and self.asked.top_logprobs is None:
            return None
        return {"content": [self._one(token) for token in tokens], "refusal": None}

    def _one(self, token: ChosenToken) -> dict[str, Any]:
        top = [self._described(i, value) for i, value in token.top]
        return {**self._described(token.id, token.log_prob), "top_logprobs": top}

    def _described(self, token: int, log_prob: float | None) -> dict[str, Any]:
        text = token_text(self.served, token)
        return {"token": text, "logprob": log_prob, "bytes": list(text.encode())}
