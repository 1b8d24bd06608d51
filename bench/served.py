"""`python -m bench served`: a server of completions under load: tokens/s, and times to the first and between tokens.

    python -m bench served --run runs/chat                              starts `qkv serve` and asks it
    python -m bench served --run runs/chat --fast --weights int8        with its options
    python -m bench served --url http://127.0.0.1:8080 --model chat     any server with OpenAI's API, such as llama-server

Each number of clients takes its requests from one list: prompts of unequal lengths (lines of `--prompts`, or made ones) with
unequal numbers of new tokens; `--data` takes questions of GSM8K, sentences of Multi30k or texts of STS-B as prompts (in the
folder that `QKV_BENCH_DATA` names). `--path /v1/embeddings` (or classify, translate, …) sends texts there in place of
completions. With `--rate` requests come by themselves instead, as a Poisson process of so many a second,
whether earlier ones are answered or not. Two servers are compared by running this once for each, on an idle machine, with
the same prompts; the numbers are printed, and not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import httpx

from . import machine
from .corpora import folder, missing

WORDS = ("the", "old", "man", "and", "a", "young", "woman", "went", "home", "by", "river", "when", "it", "was", "late")
HEAD = ("clients", "requests", "errors", "requests/s", "tokens/s", "first token p50", "p95", "between tokens p95")


COMPLETIONS = "/v1/completions"
DATA = {"gsm8k": "test.jsonl.gz", "multi30k": "test_2016_flickr.en.gz", "stsb-en": "stsb-en-test.csv.gz"}


@dataclass
class Answered:
    """What was measured of one request: seconds to its first token, between its tokens, and their number."""

    first: float = 0.0
    between: list[float] = field(default_factory=list)
    tokens: int = 0
    status: int = 0


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


async def ask(client: httpx.AsyncClient, path: str, model: str, prompt: str, new: int) -> Answered:
    """Send a request, and read its events as they come; what isn't a completion is one answer."""
    if path != COMPLETIONS:
        began = time.perf_counter()
        whole = await client.post(path, json={"model": model, "input": prompt})
        return Answered(time.perf_counter() - began, status=whole.status_code)
    body = {"model": model, "prompt": prompt, "max_tokens": new, "temperature": 0, "stream": True}
    began = last = time.perf_counter()
    answered = Answered()
    async with client.stream("POST", path, json=body) as answer:
        answered.status = answer.status_code
        async for line in answer.aiter_lines():
            if not line.startswith("data: {") or not json.loads(line[6:])["choices"]:
                continue
            now = time.perf_counter()
            if answered.tokens:
                answered.between.append(now - last)
            else:
                answered.first = now - began
            answered.tokens, last = answered.tokens + 1, now
    return answered


async def load(
    url: str, path: str, model: str, jobs: list[tuple[str, int]], clients: int, rate: float | None
) -> list[Answered]:
    """Answers to all jobs, by so many clients at a time, or as a Poisson process."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)  # llama-server closes them after a stream
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        if rate is not None:
            draw, tasks = random.Random(1), []
            for job in jobs:
                tasks.append(asyncio.ensure_future(ask(client, path, model, *job)))
                await asyncio.sleep(draw.expovariate(rate))
            return list(await asyncio.gather(*tasks))
        waiting, found = iter(jobs), list[Answered]()

        async def one() -> None:
            for job in waiting:
                found.append(await ask(client, path, model, *job))

        await asyncio.gather(*(one() for _ in range(clients)))
        return found


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


@contextmanager
def started_process(runs: list[str], options: list[str]) -> Iterator[tuple[str, int]]:
    """The address of `qkv serve` of some runs, and its process."""
    command = [sys.executable, "-m", "qkv", "serve", *runs, "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"(http://\S+?)/$", line.strip()):
                Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop the server
                yield found[1], process.pid
                return
        raise SystemExit(f"{' '.join(command)} did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def measure(url: str, model: str, arguments: argparse.Namespace) -> None:
    """Print a row for each number of clients."""
    texts = real_prompts(arguments.data) if arguments.data else None
    if arguments.prompts:
        texts = Path(arguments.prompts).read_text(encoding="utf-8").splitlines()
    texts = [text for text in texts if text.strip()] if texts else made_prompts(256, arguments.longest)
    draw = random.Random(2)
    jobs = [(texts[i % len(texts)], draw.randint(arguments.new // 4, arguments.new)) for i in range(arguments.requests)]
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for clients in [1] if arguments.rate else arguments.clients:
        asyncio.run(load(url, arguments.path, model, jobs[: max(clients, 2)], clients, None))  # warm-up
        began = time.perf_counter()
        found = asyncio.run(load(url, arguments.path, model, jobs, clients, arguments.rate))
        seconds = time.perf_counter() - began
        good = [one for one in found if one.status == 200]
        first, between = [one.first for one in good], [gap for one in good for gap in one.between]
        name = f"{arguments.rate:g}/s" if arguments.rate else clients
        cells = [name, len(found), len(found) - len(good), f"{len(good) / seconds:.1f}"]
        cells += [f"{sum(one.tokens for one in good) / seconds:.0f}"]
        cells += [f"{quantile(first, share) * 1e3:.0f} ms" for share in (0.5, 0.95)]
        print("|", " | ".join(map(str, [*cells, f"{quantile(between, 0.95) * 1e3:.0f} ms"])), "|", flush=True)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench served", description=__doc__.split("\n")[0])
    parser.add_argument("--run", help="a run to serve; small-english by default")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--model", help="its name there; by default the first that it lists")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rate", type=float, help="requests a second, as a Poisson process, in place of clients")
    parser.add_argument("--prompts", help="a file with a prompt in each line")
    parser.add_argument("--data", choices=list(DATA), help="prompts from real data")
    parser.add_argument("--path", default=COMPLETIONS, help="where requests go; completions by default")
    parser.add_argument("--longest", type=int, default=64, help="words of made prompts")
    parser.add_argument("--new", type=int, default=64, help="the most new tokens")
    arguments, options = parser.parse_known_args(argv)
    print(json.dumps(machine.describe()), flush=True)
    if arguments.url:
        model = arguments.model or httpx.get(f"{arguments.url}/v1/models").json()["data"][0]["id"]
        measure(arguments.url, model, arguments)
        return 0
    with started_process([arguments.run or "small-english"], options) as (url, _):
        measure(url, httpx.get(f"{url}/v1/models").json()["data"][0]["id"], arguments)
    return 0
