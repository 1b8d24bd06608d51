"""`python -m bench served`: servers under load, beside each other and beside the library.

    python -m bench served --run runs/chat                              starts `qkv serve` and asks it
    python -m bench served --run runs/chat --fast --weights int8        with its options
    python -m bench served --url http://127.0.0.1:8080 --model chat     any server with OpenAI's API
    python -m bench served --overhead                                   what the server adds to the library
    python -m bench served --prefix                                     1,000 tokens that requests share
    python -m bench served --against decoder                            beside llama-server, vLLM and transformers serve
    python -m bench served --against translation                        beside CTranslate2, behind a small server
    python -m bench served --against embedding                          beside sentence-transformers on ONNX Runtime
    python -m bench served --against classification                     beside ONNX Runtime

Each number of clients takes its requests from one list: prompts of unequal lengths (lines of `--prompts`, or made ones) with
unequal numbers of new tokens; `--data` takes questions of GSM8K, sentences of Multi30k or texts of STS-B as prompts (in the
folder that `QKV_BENCH_DATA` names). `--path /v1/embeddings` (or classify, translate, …) sends texts there in place of
completions; the time to the first token is then that of the whole answer. With `--rate` requests come by themselves instead,
as a Poisson process of so many a second, whether earlier ones are answered or not.

With `--against`, all servers have the same weights, precision and threads. They are loaded before the readings, answers to a
few requests are compared, and they take turns. `--peer NAME=PROGRAM` names an interpreter or a llama-server; without it
`python -m bench.peers llama-server vllm transformers-serve ctranslate2 sentence-transformers-onnx` makes their environments.
A server that is missing is told of. Numbers are printed, and not kept; measure on an idle machine.
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import httpx

from .. import machine
from ..start import directory
from .contenders import OURS, WORKS, Setting
from .load import (
    COMPLETIONS,
    DATA,
    Address,
    Job,
    Measured,
    ServerLostError,
    heading,
    jobs_of,
    made_prompts,
    measured,
    real_prompts,
    row,
    said,
)
from .overhead import overhead, shared_prefix
from .processes import free_port, started_process, started_server

AGREE = 4  # requests whose answers are compared before the readings


def main(argv: list[str]) -> int:
    parser = _parser()
    arguments, options = parser.parse_known_args(argv)
    if options and (arguments.against or arguments.url):
        parser.error(f"leave {' '.join(options)} out: --against and --url give no options to `qkv serve`")
    print(json.dumps(machine.describe()), flush=True)
    try:
        return against(arguments) if arguments.against else one_server(arguments, options)
    except ServerLostError as lost:
        raise SystemExit(str(lost)) from None


def one_server(arguments: argparse.Namespace, options: list[str]) -> int:
    """Measure `qkv serve` by itself, or a server that runs already."""
    if arguments.overhead:
        overhead(arguments.run or str(directory()), arguments.requests, arguments.new, options, arguments.threads)
    elif arguments.prefix:
        shared_prefix(arguments.requests, arguments.new, options, arguments.quick)
    elif arguments.url:
        alone(arguments.url, arguments.model or _first(arguments.url), arguments)
    else:
        with started_process([arguments.run or "small-english"], options) as (url, _):
            alone(url, _first(url), arguments)
    return 0


def _first(url: str) -> str:
    return str(httpx.get(f"{url}/v1/models").json()["data"][0]["id"])


def alone(url: str, model: str, arguments: argparse.Namespace) -> None:
    """Print a row for each number of clients, or one for the Poisson process."""
    to, jobs = Address(url, model, arguments.path), jobs_of(texts_of(arguments), arguments.requests, arguments.new)
    print(heading("clients"))
    for clients in [1] if arguments.rate else arguments.clients:
        measured(to, jobs[: max(clients, 2)], clients)  # warm-up
        name = f"{arguments.rate:g}/s" if arguments.rate else str(clients)
        print(row([name, *measured(to, jobs, clients, arguments.rate).cells]), flush=True)


def texts_of(arguments: argparse.Namespace) -> list[str]:
    texts = real_prompts(arguments.data) if arguments.data else None
    if arguments.prompts:
        texts = Path(arguments.prompts).read_text(encoding="utf-8").splitlines()
    return [text for text in texts if text.strip()] if texts else made_prompts(256, arguments.longest)


def against(arguments: argparse.Namespace) -> int:
    """Print a row for each server and number of clients; the status is 1 if ours failed."""
    work, failed = WORKS[arguments.against], 0
    if not arguments.prompts:
        arguments.data = arguments.data or work.data
    texts = work.texts(texts_of(arguments))
    for precision in arguments.precision or work.precisions[:1]:
        with ExitStack() as stack:
            servers = _started(arguments, precision, stack)
            least = None if work.path == COMPLETIONS else arguments.new  # a call of CTranslate2 has one number for all
            jobs = jobs_of(texts, arguments.requests, arguments.new, least)
            print(f"\n{arguments.against}, {precision}, {arguments.threads} threads\n")
            _agree(servers, jobs)
            print(f"\n{heading('server', 'clients')}")
            for clients in arguments.clients if servers else ():
                failed |= compared(servers, jobs, clients, arguments.rounds)
            failed |= OURS not in servers
    return int(failed)


def _started(arguments: argparse.Namespace, precision: str, stack: ExitStack) -> dict[str, Address]:
    """The servers that could be started; for each other one, why not is printed."""
    work, servers = WORKS[arguments.against], dict[str, Address]()
    programs = dict(each.split("=", 1) for each in arguments.peer)
    for name, make in work.contenders.items():
        if arguments.only and name not in (OURS, *arguments.only):
            continue
        port = free_port()
        try:
            server = make(Setting(precision, arguments.threads, port, arguments.quick, programs))
            url, cores = f"http://127.0.0.1:{port}", ["taskset", "-c", arguments.cores] if arguments.cores else []
            command = [*cores, *server.command]
            model = stack.enter_context(started_server(command, url, server.environment, server.model))
            servers[name] = Address(url, model, work.path, server.fields)
        except (ValueError, OSError) as error:
            print(f"{name} is missing: {error}", flush=True)
    return servers


def _agree(servers: dict[str, Address], jobs: list[Job]) -> None:
    """Print how far the others' answers to the first requests differ from ours. A server that answers none is left out."""
    ours = [said(servers[OURS], *job) for job in jobs[:AGREE]] if OURS in servers else []
    for name, to in list(servers.items()):
        try:
            theirs = [said(to, *job) for job in jobs[:AGREE]]
        except (ValueError, KeyError, httpx.HTTPError) as error:
            print(f"{name} is left out: {error}")
            del servers[name]
            continue
        if name == OURS or not ours:
            continue
        if isinstance(theirs[0], str):
            equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
            print(f"{name}: {equal} of {len(ours)} texts equal ours")
        else:
            pairs = [zip(a, b, strict=True) for a, b in zip(ours, theirs, strict=True)]
            print(
                f"{name}: numbers differ from ours by {max(abs(x - y) for pair in pairs for x, y in pair):.1e} at most"
            )


def compared(servers: dict[str, Address], jobs: list[Job], clients: int, rounds: int) -> bool:
    """Ask the servers in turns, and print a row for each from the round with its median rate; whether ours had errors."""
    found: dict[str, list[Measured]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name in list(servers) if number % 2 else list(reversed(servers)):
            some = jobs if number else jobs[: max(clients, 2)]  # the first round warms up
            try:
                reading = measured(servers[name], some, clients)
            except ServerLostError as lost:
                if name == OURS:
                    raise
                print(f"{name} is left out: {lost}", flush=True)
                del servers[name], found[name]
                continue
            if number:
                found[name].append(reading)
    for name, readings in found.items():
        middle = sorted(readings, key=lambda one: one.requests_per_second)[len(readings) // 2]
        print(row([name, str(clients), *middle.cells]), flush=True)
    rates = {name: median(one.requests_per_second for one in readings) for name, readings in found.items()}
    best = max((rate for name, rate in rates.items() if name != OURS), default=0.0)
    if best and OURS in rates:
        print(
            f"\nqkv has {rates[OURS] / best:.2f} times the best other server's rate with {clients} clients.\n",
            flush=True,
        )
    return any(len(one.good) < len(one.answers) for one in found.get(OURS, ()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench served", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--url", help="a server that runs already")
    what.add_argument("--against", choices=list(WORKS), help="compare servers at a kind of work")
    what.add_argument("--overhead", action="store_true", help="the server beside the library")
    what.add_argument("--prefix", action="store_true", help="1,000 tokens that requests share")
    parser.add_argument("--run", help="a run to serve; small-english by default, for --overhead a GPT-2 of 124 M")
    parser.add_argument("--model", help="its name there; by default the first that it lists")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rate", type=float, help="requests a second, as a Poisson process, in place of clients")
    parser.add_argument("--prompts", help="a file with a prompt in each line")
    parser.add_argument("--data", choices=list(DATA), help="prompts from real data")
    parser.add_argument("--path", default=COMPLETIONS, help="where requests go; completions by default")
    parser.add_argument("--longest", type=int, default=64, help="words of made prompts")
    parser.add_argument("--new", type=int, default=64, help="the most new tokens")
    parser.add_argument(
        "--precision", action="append", help="of --against: fp32 (the default), bf16, int8 or int4; repeatable"
    )
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=PROGRAM", help="an interpreter, or llama-server"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="compare qkv with this server alone; repeatable"
    )
    parser.add_argument("--threads", type=int, default=2, help="of every server in a comparison")
    parser.add_argument(
        "--cores", metavar="0-1", help="the cores of every server in a comparison, as taskset writes them"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of a comparison, after one that warms up")
    parser.add_argument("--quick", action="store_true", help="tiny models: does it work?")
    return parser
