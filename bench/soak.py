"""`python -m bench soak RUN …`: thousands of mixed requests, of which some hang up and some are bad, for one server.

    python -m bench soak runs/localise small-english runs/classify --requests 10000
    python -m bench soak runs/localise small-english runs/classify --requests 10000 --minutes 60

Requests for every endpoint that the runs have are drawn with a seed, with texts of unequal lengths; half of the completions
are streams. First each is sent by itself, then all come from `--clients` at a time, or with `--minutes` as a Poisson process
that takes so long. 5 % are bad. 5 % are drawn to hang up if they have no answer after 1 to 50 ms; most answers come sooner,
so fewer do, and both numbers are told. An answer has to be the one that it had alone, and a bad
request has to be refused with a status from 400 to 499. The server's memory is read every `--every` seconds. The first fifth
of the requests warms it up; the median in each later tenth may be 2 % above the median in the first of them, for its whole
resident memory and for the part that belongs to no file. The server's own counters have to show no failure. The status is 1
if something of this does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from . import machine
from .served.load import made_prompts
from .served.processes import started_process

HANG_UP, BAD = 0.05, 0.05
MOST_GROWTH = 1.02
PARTS = 10  # of the requests, for which the memory is told
WARM = 2  # parts that warm up
BAD_BODIES: tuple[bytes, ...] = (
    b"{",
    b"[]",
    b'{"model": "no such model", "input": "a", "prompt": "a"}',
    b'{"input": 3, "prompt": {"a": 1}}',
    b'{"input": "", "prompt": "a", "max_tokens": -1}',
    b'{"input": "\xff", "prompt": "\xff"}',
    b'{"prompt": "a", "temperature": NaN, "input": [[]]}',
)


@dataclass
class Found:
    """What was found: how often each thing happened, and the first faults in words."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        self.counts["faults"] += 1
        if len(self.faults) < 20:
            self.faults.append(text)


def bodies(path: str, model: str, text: str, draw: random.Random) -> dict[str, Any] | None:
    """The body of a request to an endpoint; None for endpoints that this doesn't ask."""
    words = text.split()
    common: dict[str, Any] = {"model": model}
    if path == "/v1/completions":
        sampled = {"temperature": draw.choice((0, 0.8)), "seed": draw.randrange(9)}
        return common | sampled | {"prompt": text, "max_tokens": draw.randint(1, 24), "stream": draw.random() < 0.5}
    if path == "/v1/chat/completions":
        return common | {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0}
    if path in ("/v1/rerank",):
        return common | {"query": words[0], "documents": [text, " ".join(words[:3]), words[-1]]}
    if path == "/v1/score":
        return common | {"text_1": text, "text_2": " ".join(reversed(words))}
    if path == "/v1/translate":
        return common | {"input": text, "options": {"max_new_tokens": 12}}
    if path == "/v1/loglikelihood":
        return common | {"input": text, "targets": words[0]}
    if path in ("/v1/embeddings", "/v1/classify", "/v1/predict", "/v1/tag"):
        return common | {"input": [text, words[0]] if draw.random() < 0.3 else text}
    return None


def requests_of(models: list[dict[str, Any]], kinds: int) -> list[tuple[str, dict[str, Any]]]:
    """Requests to all endpoints, each of which can be asked many times."""
    draw, texts = random.Random(3), made_prompts(kinds, 40)
    paths = sorted({path for model in models for path in model["endpoints"]})
    asked = []
    for text in texts:
        path = draw.choice(paths)
        model = draw.choice([one["id"] for one in models if path in one["endpoints"]])
        body = bodies(path, model, text, draw)
        if body is not None:
            asked.append((path, body))
    return asked


def essence(answer: Any) -> Any:
    """An answer without what differs from request to request."""
    if isinstance(answer, dict):
        left_out = ("id", "created", "prompt_tokens_details")
        return {name: essence(value) for name, value in answer.items() if name not in left_out}
    return [essence(each) for each in answer] if isinstance(answer, list) else answer


def whole(stream: str) -> str:
    """The texts of all events of a stream in one, with how it ended."""
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in event.get("choices", [{"text": str(event)}])]
    return "".join(choice.get("text") or "" for choice in choices) + str(choices[-1].get("finish_reason"))


def memory(process: int) -> tuple[int, int]:
    """Return the resident bytes of a process, and how many of them are not mapped from a file."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return 1024 * int(status["VmRSS"].split()[0]), 1024 * int(status["RssAnon"].split()[0])


@dataclass
class Load:
    """Requests to one server, the answer to each when it was sent alone, and what has been found so far."""

    client: httpx.AsyncClient
    process: int
    asked: list[tuple[str, dict[str, Any]]]
    alone: list[Any] = field(default_factory=list)
    found: Found = field(default_factory=Found)
    sent: int = 0
    readings: list[tuple[float, int, int, int]] = field(default_factory=list)  # minutes, sent, both of `memory`

    async def answer(self, path: str, body: dict[str, Any], **options: Any) -> tuple[int, Any]:
        """Return the status and the essence of an answer. The texts of a stream are joined."""
        answer = await self.client.post(path, json=body, **options)
        if answer.status_code != 200:
            return answer.status_code, answer.text[:200]
        return 200, whole(answer.text) if body.get("stream") else essence(answer.json())

    async def ask_alone(self) -> None:
        for path, body in self.asked:
            status, answer = await self.answer(path, body)
            if status != 200:
                self.found.fault(f"{path} alone was answered with {status}: {answer}")
            self.alone.append(answer)

    async def ask(self, draw: random.Random) -> None:
        """Send one request, which may be bad or hang up, and compare its answer."""
        number, chance = draw.randrange(len(self.asked)), draw.random()
        path, body = self.asked[number]
        if chance < BAD:
            bad = await self.client.post(path, content=draw.choice(BAD_BODIES))
            self.found.counts["refused"] += 1
            if not 400 <= bad.status_code < 500:
                self.found.fault(f"a bad request to {path} was answered with {bad.status_code}: {bad.text[:200]}")
            return
        hangs_up = chance < BAD + HANG_UP
        self.found.counts["drawn to hang up"] += hangs_up
        try:
            status, answer = await self.answer(path, body, timeout=draw.uniform(0.001, 0.05) if hangs_up else 600)
        except httpx.TimeoutException:
            self.found.counts["hung up"] += 1
            if not hangs_up:
                self.found.fault(f"{path} was not answered in time")
            return
        if status == 429:
            self.found.counts["busy"] += 1
        elif status != 200:
            self.found.fault(f"{path} was answered with {status}: {answer}")
        elif answer != self.alone[number]:
            self.found.fault(f"{path} differs from alone: {json.dumps(body)[:200]}")
        else:
            self.found.counts["equal"] += 1

    async def send(self, count: int, clients: int, minutes: float) -> None:
        """Send `count` requests from so many clients, as a Poisson process if it is to take so many minutes."""
        draw, left, began = random.Random(4), iter(range(count)), time.monotonic()
        arrivals, at = [], 0.0
        for _ in range(count):
            at += draw.expovariate(count / minutes / 60) if minutes else 0.0
            arrivals.append(at)

        async def worker() -> None:
            for number in left:
                await asyncio.sleep(max(began + arrivals[number] - time.monotonic(), 0))
                await self.ask(draw)
                self.sent += 1

        await asyncio.gather(*(worker() for _ in range(clients)))

    @asynccontextmanager
    async def watched(self, every: float) -> AsyncIterator[None]:
        """Read the process's memory every so many seconds until the block ends."""
        began = time.monotonic()

        async def watch() -> None:
            while True:
                self.readings.append(((time.monotonic() - began) / 60, self.sent, *memory(self.process)))
                await asyncio.sleep(every)

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()

    def tell_memory(self, count: int) -> None:
        """Print the median memory in each tenth of the requests, and add a fault if it grew."""
        print("| requests | minutes | resident, MiB | of them anonymous, MiB |\n|---|---|---|---|")
        warm: list[tuple[float, float]] = []
        for part in range(PARTS):
            some = [one for one in self.readings if part * count <= one[1] * PARTS < (part + 1) * count]
            if some:
                sizes = median(one[2] for one in some) / 2**20, median(one[3] for one in some) / 2**20
                print(f"| {some[-1][1]:,} | {some[-1][0]:.1f} | {sizes[0]:.1f} | {sizes[1]:.1f} |")
                warm += [sizes] if part >= WARM else []
        if not warm:
            self.found.fault("no memory was read after the warm-up: lower --every")
        for name, values in zip(("resident", "anonymous"), zip(*warm, strict=True), strict=False):
            if max(values) > MOST_GROWTH * values[0]:
                self.found.fault(f"{name} memory grew from {values[0]:.1f} to {max(values):.1f} MiB")

    async def check_counters(self) -> None:
        """Add a fault for each counter of failures that is not 0, and for each answer with a status of 500 or more."""
        lines = (await self.client.get("/metrics")).text.splitlines()
        for line in lines:
            name, _, value = line.rpartition(" ")
            failed = name in ("qkv_engine_failures_total", "qkv_engine_crashes_total") or 'status="5' in name
            if failed and float(value):
                self.found.fault(f"the server counts {name} {value}")


async def soak(url: str, process: int, count: int, clients: int, minutes: float = 0, every: float = 1) -> Found:
    """Send `count` requests, and return what was found."""
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=httpx.Limits(max_connections=None)) as client:
        models = (await client.get("/v1/models")).json()["data"]
        load = Load(client, process, requests_of(models, 200))
        print(
            ", ".join(f"{path} {number}" for path, number in Counter(path for path, _ in load.asked).items()),
            flush=True,
        )
        await load.ask_alone()
        async with load.watched(every):
            await load.send(count, clients, minutes)
        await load.check_counters()
    load.tell_memory(count)
    return load.found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", help="runs to serve together")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=0, help="spread the requests over so many minutes")
    parser.add_argument("--every", type=float, default=1, help="seconds between readings of the memory")
    given, options = parser.parse_known_args(argv)
    print(json.dumps(machine.describe()), flush=True)
    began = time.perf_counter()
    with started_process(given.runs, options) as (url, process):
        found = asyncio.run(soak(url, process, given.requests, given.clients, given.minutes, given.every))
    print(
        ", ".join(f"{name} {number}" for name, number in found.counts.items()),
        f"in {time.perf_counter() - began:.0f} s",
    )
    print("\n".join(found.faults))
    return int(bool(found.faults))
