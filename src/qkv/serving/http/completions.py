"""`/v1/completions`: continue texts, as OpenAI's clients ask for it."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..engine.continuation import ChosenToken, Ending, NewText, Work
from . import bodies
from .errors import ApiError
from .generating import Choice, CompletionAnswer, reason
from .sampling import SamplingFields, checked_texts
from .served import Models, RequestLimits, Served, nobody

PATH = "/v1/completions"


class CompletionFields(SamplingFields):
    """A request for completions. `prompt` is a text, ids, or a list of either.

    best_of: how many samples to draw of each prompt; the `n` with the highest mean log-probability of a token are kept.
    """

    prompt: str | list[str] | list[int] | list[list[int]] = ""
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool = False
    best_of: int | None = Field(None, ge=1, le=128)
    suffix: str | None = None


async def completions(request: Request) -> Response:
    models: Models = request.app.state.models
    asked = await bodies.fields(request, CompletionFields, models.limits.body)
    served = models.find(asked.model, PATH)
    if asked.suffix:
        raise ApiError(
            400, "suffix is not served: the models here write what comes next, not what stands between", "suffix"
        )
    kept, drawn = asked.n, asked.best_of or asked.n
    if drawn < kept:
        raise ApiError(400, f"best_of is {drawn}, and n of them are kept; give at least {kept}", "best_of")
    if drawn > kept and asked.stream:
        raise ApiError(400, "the best completion is known only at the end; leave out stream or best_of", "best_of")
    asked = asked.model_copy(update={"n": drawn})
    works = await asyncio.to_thread(_works, served, asked, models.limits)
    if drawn > kept and asked.logprobs is None:
        for work in works:
            work.likeliest = 0  # the samples are compared by their log-probabilities
    writer = _Writer(served, asked)
    answer = CompletionAnswer(models, served, works, asked, "text_completion", writer.choice, writer.delta, kept=kept)
    return await answer.response(request)


def _works(served: Served, asked: CompletionFields, limits: RequestLimits) -> list[Work]:
    run, grammar = served.run, asked.grammar
    settings, stop = asked.settings(run.generation), asked.stops(limits)
    works = []
    for ids in _prompts(served, asked.prompt, limits):
        work = Work(
            *(run, ids, settings, nobody),
            stop=stop,
            likeliest=asked.logprobs,
            echo=asked.echo and asked.logprobs is not None,
            streams=asked.stream,
        )
        asked.check_context(work)
        size, width = run.model.vocab_size, len(work.prompt)
        own = [] if grammar is None else [grammar.processor(run.words, size, sorted(work.eos), width)]
        work.processors = [*own, *asked.processors(size, width)]
        works.append(work)
    return works


def _prompts(served: Served, given: Any, limits: RequestLimits) -> list[list[int]]:
    """The ids of each prompt."""
    if isinstance(given, str):
        given = [given]
    if given and isinstance(given[0], int):
        given = [given]
    if given and isinstance(given[0], str):
        return [served.run.encode(text) for text in checked_texts(given, limits, "prompt")]
    if not given or len(given) > limits.texts:
        raise ValueError(f"prompt has {len(given)} prompts, and a request has 1 to {limits.texts}")
    size = served.run.model.vocab_size
    wrong = next((token for ids in given for token in ids if not 0 <= token < size), None)
    if wrong is not None:
        raise ValueError(f"prompt holds the token {wrong}; the vocabulary is 0 … {size - 1}")
    return [list(ids) for ids in given]


class _Writer:
    """Writes choices in OpenAI's form."""

    def __init__(self, served: Served, asked: CompletionFields) -> None:
        self.served, self.asked = served, asked
        self.begun: set[int] = set()

    def choice(self, index: int, work: Work, event: Ending) -> Choice:
        tokens, text = event.tokens, event.text
        if self.asked.max_tokens == 0:
            tokens, text = (), ""
        if self.asked.echo:
            tokens, text = (*work.read, *tokens), self._prompt(work) + text
        return {
            "index": index,
            "text": text,
            "logprobs": self._log_probs(tokens, 0),
            "finish_reason": "length" if self.asked.max_tokens == 0 else reason(event),
        }

    def delta(self, index: int, work: Work, event: NewText | Ending) -> Choice:
        if isinstance(event, Ending):
            return {"index": index, "text": "", "logprobs": None, "finish_reason": reason(event)}
        text, tokens = event.text, event.tokens
        if self.asked.echo and index not in self.begun:
            self.begun.add(index)
            text, tokens = self._prompt(work) + text, (*work.read, *tokens)
        return {"index": index, "text": text, "logprobs": self._log_probs(tokens, 0), "finish_reason": None}

    def _prompt(self, work: Work) -> str:
        return self.served.run.words.decode(list(work.prompt))

    def _log_probs(self, tokens: tuple[ChosenToken, ...], offset: int) -> dict[str, Any] | None:
        if self.asked.logprobs is None:
            return None
        texts = [self._text(token.id) for token in tokens]
        offsets = []
        for text in texts:
            offsets.append(offset)
            offset += len(text)
        tops = [
            None if token.log_prob is None else {self._text(i): value for i, value in reversed(token.top)}
            for token in tokens
        ]
        return {
            "tokens": texts,
            "token_logprobs": [token.log_prob for token in tokens],
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        return token_text(self.served, token)


def token_text(served: Served, token: int) -> str:
    """The text of one token; of a special one, its name."""
    words = served.run.words
    return words.decode([token]) or words.tokens([token])[0]
