"""`python -m bench soak RUN …`: thousands of mixed requests, of which some hang up and some are bad, for one server.

    python -m bench soak runs/localise small-english runs/classify --requests 10000

Requests for every endpoint that the runs have are drawn with a seed, with texts of unequal lengths. First each is sent by
itself, then all come from `--clients` at a time; 5 % hang up in the middle and 5 % are bad. An answer has to be the one that
it had alone, a bad request has to be refused with a status from 400 to 499, and the server's memory after the first fifth of
the requests and at the end may differ by 2 %. The status is 1 if something of this does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from . import machine
from .served.load import made_prompts
from .served.processes import started_process

HANG_UP, BAD = 0.05, 0.05
MOST_GROWTH = 1.02
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
        return common | sampled | {"prompt": text, "max_tokens": draw.randint(1, 24)}
    if path == "/v1/chat/completions":
        return common | {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0}
    if path in ("/v1/rerank",):
        return common | {"query": words[0], "documents": [text, " ".join(words[:3]), words[-1]]}
    if path == "/v1/score":
        return common | {"text_1": text, "text_2": " ".join(reversed(words))}
    if path == "/v1/translate":
        return common | {"input": text, "options": {"max_new_tokens": 12}}
    if path in ("/v1/embeddings", "/v1/classify"):
        return common | {"input": [text, words[0]] if draw.random() < 0.3 else text}
    return None


def requests_of(models: list[dict[str, Any]], kinds: int) -> list[tuple[str, dict[str, Any]]]:
    """Requests to all endpoints, each of which can be asked many times."""
    draw, texts = random.Random(3), made_prompts(kinds, 40)
    asked = []
    for text in texts:
        model = draw.choice(models)
        body = bodies(path := draw.choice(model["endpoints"]), model["id"], text, draw)
        if body is not None:
            asked.append((path, body))
    return asked


def essence(answer: Any) -> Any:
    """An answer without what differs from request to request."""
    if isinstance(answer, dict):
        left_out = ("id", "created", "prompt_tokens_details")
        return {name: essence(value) for name, value in answer.items() if name not in left_out}
    return [essence(each) for each in answer] if isinstance(answer, list) else answer


def resident(process: int) -> int:
    """Bytes of a process in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


async def one(
    client: httpx.AsyncClient,
    draw: random.Random,
    asked: list[tuple[str, dict[str, Any]]],
    alone: list[Any],
    found: Found,
) -> None:
    """Send one request, which may be bad or hang up, and compare its answer."""
    number, chance = draw.randrange(len(asked)), draw.random()
    path, body = asked[number]
    if chance < BAD:
        bad = await client.post(path, content=draw.choice(BAD_BODIES))
        found.counts["refused"] += 1
        if not 400 <= bad.status_code < 500:
            found.fault(f"a bad request to {path} was answered with {bad.status_code}: {bad.text[:200]}")
        return
    if chance < BAD + HANG_UP:
        try:
            await client.post(path, json=body, timeout=draw.uniform(0.001, 0.05))
        except httpx.TimeoutException:
            found.counts["hung up"] += 1
        return
    answer = await client.post(path, json=body)
    if answer.status_code == 429:
        found.counts["busy"] += 1
    elif answer.status_code != 200:
        found.fault(f"{path} was answered with {answer.status_code}: {answer.text[:200]}")
    elif essence(answer.json()) != alone[number]:
        found.fault(f"{path} differs from alone: {json.dumps(body)[:200]}")
    else:
        found.counts["equal"] += 1


async def soak(url: str, process: int, count: int, clients: int) -> Found:
    """Send `count` requests; what was found."""
    found = Found()
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=httpx.Limits(max_connections=None)) as client:
        models = (await client.get("/v1/models")).json()["data"]
        asked = requests_of(models, 200)
        alone = []
        for path, body in asked:
            answer = await client.post(path, json=body)
            if answer.status_code != 200:
                found.fault(f"{path} alone was answered with {answer.status_code}: {answer.text[:200]}")
            alone.append(essence(answer.json()))
        draw, left = random.Random(4), iter(range(count))
        sizes = {}

        async def worker() -> None:
            for number in left:
                await one(client, draw, asked, alone, found)
                if number in (count // 5, count - 1):
                    sizes[number] = resident(process)

        await asyncio.gather(*(worker() for _ in range(clients)))
    before, after = sizes[count // 5], sizes[count - 1]
    found.counts["MiB before"], found.counts["MiB after"] = before >> 20, after >> 20
    if after > MOST_GROWTH * before:
        found.fault(f"memory grew from {before >> 20} to {after >> 20} MiB")
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", help="runs to serve together")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    given, options = parser.parse_known_args(argv)
    print(json.dumps(machine.describe()), flush=True)
    began = time.perf_counter()
    with started_process(given.runs, options) as (url, process):
        found = asyncio.run(soak(url, process, given.requests, given.clients))
    print(
        ", ".join(f"{name} {number}" for name, number in found.counts.items()),
        f"in {time.perf_counter() - began:.0f} s",
    )
    print("\n".join(found.faults))
    return int(bool(found.faults))
