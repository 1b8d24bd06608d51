"""The load: requests of unequal lengths, by so many clients or as a Poisson process, and what is measured of them."""

from __future__ import annotations

import asyncio
import csv
import gzip
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import httpx

from ..corpora import folder, missing

WORDS = ("the", "old", "man", "and", "a", "young", "woman", "went", "home", "by", "river", "when", "it", "was", "late")
HEAD = ("requests", "errors", "requests/s", "tokens/s", "first token p50", "p95", "between tokens p95")
COMPLETIONS = "/v1/completions"
DATA = {"gsm8k": "test.jsonl.gz", "multi30k": "test_2016_flickr.en.gz", "stsb-en": "stsb-en-test.csv.gz"}
Job = tuple[str, int]
"""A text, and the number of new tokens."""


@dataclass
class Answered:
    """What was measured of one request: seconds to its first token, between its tokens, and their number."""

    first: float = 0.0
    between: list[float] = field(default_factory=list)
    tokens: int = 0
    status: int = 0


class ServerLostError(Exception):
    """A server that had answered can't be reached any more; the message is a sentence for the user."""

    def __init__(self, url: str, error: Exception) -> None:
        super().__init__(
            f"the server at {url} stopped answering ({type(error).__name__}: {error}); it may have died, for "
            "instance of too little memory: start it by hand to see what it says"
        )


def nothing(new: int) -> dict[str, Any]:
    """No fields besides OpenAI's."""
    return {}


@dataclass(frozen=True)
class Address:
    """Where requests go, and the fields that a server wants besides OpenAI's for a number of new tokens."""

    url: str
    model: str
    path: str = COMPLETIONS
    fields: Callable[[int], dict[str, Any]] = nothing


def made_prompts(count: int, longest: int) -> list[str]:
    """Texts of 4 to `longest` words."""
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, longest))) for _ in range(count)]


def real_prompts(name: str) -> list[str]:
    """Questions, sentences, or both texts of every pair. Raises SystemExit if the data are missing."""
    if lacks := missing(name):
        raise SystemExit(lacks)
    lines = gzip.decompress((folder(name) / DATA[name]).read_bytes()).decode().splitlines()
    if name == "gsm8k":
        return [json.loads(line)["question"] for line in lines]
    return [text for row in csv.reader(lines) for text in row[:2]] if name == "stsb-en" else lines


async def ask(client: httpx.AsyncClient, to: Address, prompt: str, new: int) -> Answered:
    """Send a request, and read its events as they come; what isn't a completion is one answer."""
    if to.path != COMPLETIONS:
        began = time.perf_counter()
        whole = await client.post(to.path, json={"model": to.model, "input": prompt, **to.fields(new)})
        return Answered(time.perf_counter() - began, status=whole.status_code)
    body = {"model": to.model, "prompt": prompt, "max_tokens": new, "temperature": 0, "stream": True}
    body |= {"stream_options": {"include_usage": True}, **to.fields(new)}
    began = last = time.perf_counter()
    answered = Answered()
    async with client.stream("POST", to.path, json=body) as answer:
        answered.status, counted = answer.status_code, None
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:  # after the status
                answered.status = 500
            counted = (event.get("usage") or {}).get("completion_tokens", counted)
            if not event.get("choices"):
                continue
            now = time.perf_counter()
            if answered.tokens:
                answered.between.append(now - last)
            else:
                answered.first = now - began
            answered.tokens, last = answered.tokens + 1, now
    if counted is not None:  # an event can hold several tokens
        answered.tokens = counted
    return answered


def said(to: Address, prompt: str, new: int) -> str | list[float]:
    """A whole answer: a text, or the numbers of a vector or of classes. Raises ValueError for an error."""
    body = {"prompt": prompt, "max_tokens": new, "temperature": 0} if to.path == COMPLETIONS else {"input": prompt}
    answer = httpx.post(to.url + to.path, json={"model": to.model, **body, **to.fields(new)}, timeout=600)
    if answer.status_code != 200:
        raise ValueError(f"it answers {answer.status_code}: {answer.text[:300]}")
    found = answer.json().get("choices") or answer.json()["data"]
    one = found[0]
    if "text" in one:
        return str(one["text"])
    if "embedding" in one:
        return list(one["embedding"])
    shares = one["probabilities"]  # by class, or in the order of the classes
    return sorted(shares.values() if isinstance(shares, dict) else shares)


async def load(to: Address, jobs: list[Job], clients: int, rate: float | None = None) -> list[Answered]:
    """Answers to all jobs, by so many clients at a time, or as a Poisson process of `rate` a second."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)  # llama-server closes them after a stream
    async with httpx.AsyncClient(base_url=to.url, timeout=600, limits=limits) as client:
        if rate is not None:
            draw, tasks = random.Random(1), []
            for job in jobs:
                tasks.append(asyncio.ensure_future(ask(client, to, *job)))
                await asyncio.sleep(draw.expovariate(rate))
            return list(await asyncio.gather(*tasks))
        waiting, found = iter(jobs), list[Answered]()

        async def one() -> None:
            for job in waiting:
                found.append(await ask(client, to, *job))

        await asyncio.gather(*(one() for _ in range(clients)))
        return found


@dataclass
class Measured:
    """A load that was answered, in how many seconds."""

    answers: list[Answered]
    seconds: float

    @property
    def good(self) -> list[Answered]:
        return [one for one in self.answers if one.status == 200]

    @property
    def requests_per_second(self) -> float:
        return len(self.good) / self.seconds

    @property
    def tokens_per_second(self) -> float:
        return sum(one.tokens for one in self.good) / self.seconds

    def first(self, share: float) -> float:
        return quantile([one.first for one in self.good], share)

    @property
    def cells(self) -> list[str]:
        """What `HEAD` names."""
        between = [gap for one in self.good for gap in one.between]
        cells = [str(len(self.answers)), str(len(self.answers) - len(self.good)), f"{self.requests_per_second:.1f}"]
        cells += [f"{self.tokens_per_second:.0f}" if self.tokens_per_second else "–"]
        return cells + [_milliseconds(one) for one in (self.first(0.5), self.first(0.95), quantile(between, 0.95))]


def measured(to: Address, jobs: list[Job], clients: int, rate: float | None = None) -> Measured:
    """Send a load and wait for all answers. Raises `ServerLostError` if the server dies meanwhile."""
    began = time.perf_counter()
    try:
        answers = asyncio.run(load(to, jobs, clients, rate))
    except httpx.TransportError as error:
        raise ServerLostError(to.url, error) from None
    return Measured(answers, time.perf_counter() - began)


def jobs_of(texts: list[str], requests: int, new: int, least: int | None = None) -> list[Job]:
    """So many requests for the texts in turn, with `least` (by default a quarter of `new`) to `new` new tokens."""
    draw = random.Random(2)
    return [(texts[i % len(texts)], draw.randint(least or max(new // 4, 1), new)) for i in range(requests)]


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def _milliseconds(seconds: float) -> str:
    return "–" if isnan(seconds) else f"{seconds * 1e3:.0f} ms"


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def heading(*names: str) -> str:
    return f"{row([*names, *HEAD])}\n|{'---|' * (len(names) + len(HEAD))}"
