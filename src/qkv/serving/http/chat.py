"""`/v1/chat/completions`: replies to conversations, as OpenAI's clients ask for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ...data.tokenizers.tokenizer import Tokenizer
from ...generation.grammar.rules import Grammar
from ..engine.continuation import ChosenToken, Ending, NewText, Work
from . import bodies
from .calls.forms import CallForm, ToolCall, chosen, functions
from .calls.streams import CallStream, described
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
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict, max_length=32)

    def tool_form(self, words: Tokenizer) -> CallForm | None:
        """The form of calls in replies; None if there are none. Raises ValueError if the template has none."""
        if self.tool_choice == "none" or not self.tools:
            if self.tool_choice not in (None, "none", "auto"):
                raise ValueError("tool_choice requires a call, but the request has no tools; add tools")
            return None
        return CallForm.of(words)

    def form_of_replies(self, words: Tokenizer) -> Grammar | None:
        """The grammar of replies: calls of tools, or `response_format`. Raises ValueError for both at a time."""
        form = self.tool_form(words)
        if form is None:
            return self.grammar
        if (self.response_format or {}).get("type", "text") != "text":
            raise ValueError(
                'response_format and tools are not served together; send tool_choice "none", or leave one out'
            )
        required = self.tool_choice not in (None, "auto")
        allowed = chosen(functions(self.tools or ()), self.tool_choice)
        one = isinstance(self.tool_choice, dict) or self.parallel_tool_calls is False
        return form.grammar(allowed, required=required, several=not one)


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
    run = replace(served.run, task="answer")
    words = run.words
    texts = [part for message in asked.messages for part in _texts(message.get("content"))]
    if texts:
        checked_texts(texts, replace(limits, texts=limits.body), "messages")
    grammar = asked.form_of_replies(words)
    tools = None if asked.tool_choice == "none" else asked.tools
    prompt = words.chat.prompt(asked.messages, tools, variables=asked.chat_template_kwargs)
    top = (asked.top_logprobs or 0) if asked.logprobs or asked.top_logprobs is not None else None
    work = Work(
        *(run, prompt, asked.settings(run.generation), nobody),
        stop=asked.stops(limits),
        ends=words.chat.ends,
        likeliest=top,
        streams=asked.stream,
    )
    asked.check_context(work)
    size, width = run.model.vocab_size, len(work.prompt)
    own = [] if grammar is None else [grammar.processor(words, size, sorted(work.eos), width)]
    work.processors = [*own, *asked.processors(size, width)]
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
        self.form = asked.tool_form(served.run.words)
        self._streams: dict[int, CallStream] = {}

    def choice(self, index: int, work: Work, event: Ending) -> Choice:
        message: dict[str, Any] = {"role": "assistant", "content": event.text, "refusal": None}
        calls: list[ToolCall] = []
        if self.form is not None:
            ids = [token.id for token in event.tokens]
            text, calls = self.form.read(self.form.spelled(self.served.run.words, ids, work.stop))
            if calls:
                message |= {"content": text or None, "tool_calls": [described(one) for one in calls]}
        return {
            "index": index,
            "message": message,
            "logprobs": self._log_probs(event.tokens),
            "finish_reason": "tool_calls" if calls and event.outcome == "stop" else reason(event),
        }

    def delta(self, index: int, work: Work, event: NewText | Ending) -> Choice:
        delta: dict[str, Any] = {} if isinstance(event, Ending) else {"content": event.text}
        is_end = isinstance(event, Ending)
        ended = reason(event) if isinstance(event, Ending) else None
        if self.form is not None:
            stream = self._streams.setdefault(index, CallStream(self.form, self.served.run.words, work.stop))
            delta = stream.delta([token.id for token in event.tokens], is_end)
            if ended == "stop" and stream.calls:
                ended = "tool_calls"
        log_probs = None if is_end else self._log_probs(event.tokens)
        return {"index": index, "delta": delta, "logprobs": log_probs, "finish_reason": ended}

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
