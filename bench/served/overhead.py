"""What the server costs beside the library: milliseconds of a request, throughput, and a prefix that requests share."""

from __future__ import annotations

import http.client
import json
import random
import re
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import httpx

from ..start import directory
from .load import Address, ServerLostError, jobs_of, made_prompts, measured
from .processes import started_process

ASKED_MS, ASKED_SHARE = 3.0, 0.05
PREFIX = 1000  # tokens


class Kept:
    """A connection that stays open. It costs a client less than httpx does, so less of it is taken for the server's time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=600)

    def __call__(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            self.connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = self.connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServerLostError(self.url, error) from None
        if answer.status != 200:
            raise SystemExit(f"{path} was answered by {answer.status}: {content.decode()[:300]}")
        return dict(json.loads(content))


def in_turns(library: Callable[[str], object], server: Callable[[str], object], texts: list[str]) -> list[float]:
    """The median seconds of each for a text, asked one after the other, whose order changes."""
    seconds: list[list[float]] = [[], []]
    for number, text in enumerate(texts):
        for which in (0, 1) if number % 2 else (1, 0):
            began = time.perf_counter()
            (library, server)[which](text)
            seconds[which].append(time.perf_counter() - began)
    return [median(each) for each in seconds]


def overhead(run: str, requests: int, new: int, options: list[str], threads: int) -> None:
    """Print what the server adds to a request, and what share of the library's throughput it reaches with 16 clients."""
    import torch

    import qkv

    torch.set_num_threads(threads)
    loaded, texts = qkv.load(run, device="cpu"), made_prompts(max(requests, 16), 24)
    settings: dict[str, Any] = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
    settings |= dict.fromkeys(("temperature", "top_p", "top_k"))
    fields = {"model": loaded.title, "max_tokens": new, "min_tokens": new, "temperature": 0}
    with started_process([run], options) as (url, _):
        ask = Kept(url)
        kinds: dict[str, tuple[Callable[[str], object], Callable[[str], object]]] = {
            f"completion of {new} tokens": (
                lambda text: loaded.generate(text, **settings),
                lambda text: ask("/v1/completions", {**fields, "prompt": text}),
            ),
            "embedding": (
                lambda text: loaded.embed_array([text]),
                lambda text: ask("/v1/embeddings", {"model": loaded.title, "input": text, "encoding_format": "base64"}),
            ),
        }
        print(f"| one request | library | server | added (at most {ASKED_MS:g} ms is the goal) |\n|---|---|---|---|")
        for name, (library, server) in kinds.items():
            in_turns(library, server, texts[:4])  # warm-up
            ours, theirs = in_turns(library, server, texts[:requests])
            added = theirs - ours
            print(f"| {name} | {ours * 1e3:.2f} ms | {theirs * 1e3:.2f} ms | {added * 1e3:+.2f} ms |", flush=True)
        to = Address(url, loaded.title, fields=lambda new: {"min_tokens": new})
        _throughput(to, texts[:requests], new, lambda some: loaded.generate(some, **settings))


def _throughput(to: Address, texts: list[str], new: int, library: Callable[[list[str]], object]) -> None:
    """Print tokens/s of 16 clients beside those of the library, called with all texts at once, in turns."""
    jobs, rates = jobs_of(texts, len(texts), new, new), list[tuple[float, float]]()
    for _ in range(4):
        began = time.perf_counter()
        library(texts)
        seconds = time.perf_counter() - began
        rates.append((len(texts) * new / seconds, measured(to, jobs, 16).tokens_per_second))
    ours, theirs = (median(each) for each in zip(*rates[1:], strict=True))  # the first turn is a warm-up
    print(f"\n| {len(texts)} texts, {new} new tokens each | tokens/s |\n|---|---|")
    print(f"| library, all in one call | {ours:.0f} |\n| server, 16 clients | {theirs:.0f} |")
    print(
        f"\nThe server has {theirs / ours:.1%} of the library's throughput; at least {1 - ASKED_SHARE:.0%} is the goal."
    )


def shared_prefix(requests: int, new: int, options: list[str], tiny: bool = False) -> None:
    """Print the tokens of prompts that are computed, and the times, for requests that share 1,000 tokens and that don't."""
    run, length = directory(tiny), PREFIX
    with started_process([str(run)], options) as (url, _):
        ask, size = Kept(url), 500
        draw = random.Random(0)
        shared, ends = _ids(draw, size, length), [_ids(draw, size, 8) for _ in range(requests)]
        own = [_ids(draw, size, length) for _ in range(requests)]
        body: dict[str, Any] = {"max_tokens": new, "min_tokens": new, "temperature": 0}
        ask("/v1/completions", {**body, "prompt": _ids(draw, size, 40)})  # warm-up
        print("| requests | tokens of prompts | computed | median seconds |\n|---|---|---|---|")
        for name, prompts in (
            ("prefixes of their own", [begin + end for begin, end in zip(own, ends, strict=True)]),
            (f"a shared prefix of {length:,} tokens", [shared + end for end in ends]),
        ):
            before, seconds = _computed(url), []
            for prompt in prompts:
                began = time.perf_counter()
                ask("/v1/completions", {**body, "prompt": prompt})
                seconds.append(time.perf_counter() - began)
            later = seconds[1:] or seconds  # the first request reads the prefix
            total = sum(map(len, prompts))
            print(f"| {name} | {total:,} | {_computed(url) - before:,} | {median(later):.3f} |", flush=True)
        print("\nThe first request of a kind is left out of the seconds. A prefix is shared in whole blocks of tokens.")


def _ids(draw: random.Random, size: int, count: int) -> list[int]:
    return [draw.randrange(size) for _ in range(count)]


def _computed(url: str) -> int:
    """The tokens of prompts that a server has read so far."""
    return int(re.findall(r"^qkv_prompt_tokens_total (\d+)", httpx.get(f"{url}/metrics").text, re.MULTILINE)[0])
