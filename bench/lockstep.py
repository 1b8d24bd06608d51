"""Contenders taking turns: each a separate process, one round at a time, A B A B …, with probes of the machine between."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from . import checks, peers

ROOT = Path(__file__).resolve().parent.parent
PROBE = "probe"
SHORTEST_MS = 100.0  # a round repeats what is shorter than this
SETTLE_S = 0.02  # OpenMP's threads spin a little after their work; they shall not do it in the next one's time


class Failed(Exception):
    """A contender could not do what it was asked to."""


@dataclass(frozen=True)
class Contender:
    """Who takes part: `what` ("module:Class") with `options` in an environment, or a `command` that is timed whole.

    `keep_pages` gives its process the settings of the allocator that qkv's command line gives itself; `variables` are set
    in the process's environment.
    """

    name: str
    what: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    environment: str = peers.OURS
    command: tuple[str, ...] = ()
    keep_pages: bool = False
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One comparison. `key` says of what; `once`: no rounds, each alone runs it once and its memory is what matters.

    `fresh` starts new processes, so peaks of memory are the case's own. `profiled` names whose profile is kept.
    `whole`: a round is a whole run from its start to its end, so there is no round to warm up and none to look at after.
    `vocab_size`: they train with cross-entropy over so many words, and it is checked that they do (see `checks`).
    """

    key: dict[str, Any]
    contenders: tuple[Contender, ...]
    once: bool = False
    fresh: bool = False
    profiled: tuple[str, ...] = ()
    whole: bool = False
    vocab_size: int | None = None

    @property
    def title(self) -> str:
        return describe(self.key)


def describe(key: dict[str, Any]) -> str:
    """A case's key in words, its details left out."""
    return ", ".join(
        f"{name} {value}" for name, value in key.items() if isinstance(value, str | int) and name != "flops"
    )


class Runner(Protocol):
    """What can take a round."""

    facts: dict[str, Any]

    def round(self, repeats: int) -> dict[str, Any]: ...
    def close(self) -> None: ...


class Worker:
    """A contender's process (see `worker`). It can be made into one contender after another."""

    def __init__(self, contender: Contender, threads: int) -> None:
        self.facts: dict[str, Any] = {}
        self.versions: dict[str, str] = {}
        self.kind = self.kind_of(contender)
        env = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": str(ROOT),
            "TOKENIZERS_PARALLELISM": "false",
            **contender.variables,
        }
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by close)
        self._process = subprocess.Popen(
            [str(peers.python(contender.environment)), "-m", "bench.worker", *["--keep-pages"] * contender.keep_pages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            env=env,
            cwd=ROOT,
        )

    @staticmethod
    def kind_of(contender: Contender) -> tuple[Any, ...]:
        """What a process can't change once it runs."""
        return contender.environment, contender.keep_pages, contender.variables

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failed(f"the process ended with status {self._process.wait()}: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def make(self, contender: Contender) -> Worker:
        answer = self.ask("make", what=contender.what, options=contender.options)
        self.facts, self.versions = answer["facts"], answer["versions"]
        return self

    def round(self, repeats: int) -> dict[str, Any]:
        return self.ask("round", repeats=repeats)

    def close(self) -> None:
        self._process.communicate()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().strip().rpartition("\n")[2]


class Command:
    """A command, timed from its start to its end."""

    def __init__(self, contender: Contender, threads: int) -> None:
        self.facts: dict[str, Any] = {}
        program, *arguments = contender.command
        self.command = [str(peers.python(contender.environment).parent / program), *arguments]
        self.env = {**os.environ, "OMP_NUM_THREADS": str(threads), **contender.variables}

    def round(self, repeats: int) -> dict[str, Any]:
        start = time.perf_counter()
        for _ in range(repeats):
            done = subprocess.run(self.command, env=self.env, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise Failed(f"status {done.returncode}: {done.stderr.strip().rpartition(chr(10))[2]}")
        return {"ms": 1e3 * (time.perf_counter() - start) / repeats}

    def close(self) -> None:
        """Nothing is left running."""


class Ring:
    """The contenders' processes, kept from case to case if cases allow it."""

    def __init__(self, threads: int) -> None:
        self.threads, self.workers = threads, dict[str, Worker]()
        self.versions: dict[str, dict[str, str]] = {}

    def enter(self, contender: Contender) -> Runner:
        if contender.command:
            return Command(contender, self.threads)
        if contender.name in self.workers and self.workers[contender.name].kind != Worker.kind_of(contender):
            self.leave(contender.name)
        if contender.name not in self.workers:
            self.workers[contender.name] = Worker(contender, self.threads)
        worker = self.workers[contender.name].make(contender)
        self.versions[contender.environment] = worker.versions
        return worker

    def leave(self, name: str) -> None:
        if name in self.workers:
            self.workers.pop(name).close()

    def close(self) -> None:
        for name in list(self.workers):
            self.leave(name)


@contextmanager
def ring(threads: int) -> Iterator[Ring]:
    made = Ring(threads)
    try:
        yield made
    finally:
        made.close()


def measure(case: Case, ring: Ring, rounds: int, probe: Contender) -> dict[str, Any]:
    """A case's record: for every contender a list of readings, one a round, and the probes' between them."""
    record: dict[str, Any] = {"key": case.key, "load": os.getloadavg()[0], "contenders": {}, "errors": {}}
    if case.once:
        _each_alone(case, ring, record)
    else:
        _in_turns(case, ring, rounds, probe, record)
    if case.fresh or case.once:
        for contender in case.contenders:
            ring.leave(contender.name)
    return record


def _each_alone(case: Case, ring: Ring, record: dict[str, Any]) -> None:
    for contender in case.contenders:
        ring.leave(contender.name)
        try:
            runner = ring.enter(contender)
            assert isinstance(runner, Worker), "a command's memory is not measured"
            record["contenders"][contender.name] = {"facts": runner.facts, "rounds": [runner.ask("peak")]}
        except Failed as failure:
            record["errors"][contender.name] = str(failure)
        ring.leave(contender.name)


def _in_turns(case: Case, ring: Ring, rounds: int, probe: Contender, record: dict[str, Any]) -> None:
    entered = _entered(case, ring, record)
    checks.same_size({name: runner.facts for name, runner in entered.items()})
    for name, runner in list(entered.items()):
        record["contenders"][name] = {"facts": runner.facts, "repeats": 1, "rounds": []}
        if not case.whole:
            _or_leave(name, entered, record, lambda runner, kept: kept.update(_warmed(runner)))
    prober = ring.enter(probe)
    prober.round(1)
    record["probes"] = []
    for number in range(rounds):
        record["probes"].append(prober.round(1)["values"])
        names = list(entered)
        shift = number % max(len(names), 1)  # nobody always runs behind the same one
        for name in names[shift:] + names[:shift]:
            time.sleep(SETTLE_S)
            _or_leave(name, entered, record, lambda runner, kept: kept["rounds"].append(runner.round(kept["repeats"])))
    for name in list(entered):
        _or_leave(name, entered, record, partial(_last_look, case, name in case.profiled))
    if case.vocab_size is not None:
        _only_learners(case.vocab_size, case.key.get("steps", 1), record)


def _or_leave(
    name: str,
    entered: dict[str, Runner],
    record: dict[str, Any],
    do: Callable[[Runner, dict[str, Any]], object],
) -> None:
    """Do something with a contender; one that fails is out of the case, and the others continue."""
    try:
        do(entered[name], record["contenders"][name])
    except Failed as failure:
        record["errors"][name] = str(failure)
        del entered[name], record["contenders"][name]


def _only_learners(vocab_size: int, steps: int, record: dict[str, Any]) -> None:
    """Put those who don't train what the others do out of the record."""
    for name in list(record["contenders"]):
        wrong = checks.not_learning(record["contenders"][name], vocab_size, steps)
        if wrong:
            record["errors"][name] = wrong
            del record["contenders"][name]


def _entered(case: Case, ring: Ring, record: dict[str, Any]) -> dict[str, Runner]:
    entered: dict[str, Runner] = {}
    for contender in case.contenders:
        try:
            if case.fresh:
                ring.leave(contender.name)
            entered[contender.name] = ring.enter(contender)
        except Failed as failure:
            record["errors"][contender.name] = str(failure)
    return entered


def _warmed(runner: Runner) -> dict[str, Any]:
    """The very first call, and by a second one how often a round repeats the work, so it is long enough to be timed."""
    first, again = runner.round(1), runner.round(1)
    return {"first": first, "repeats": max(1, min(100, math.ceil(SHORTEST_MS / max(again["ms"], 1e-3))))}


def _last_look(case: Case, profiled: bool, runner: Runner, kept: dict[str, Any]) -> None:
    """What is measured after the rounds, so it disturbs none: the peak of memory, the profile."""
    if isinstance(runner, Worker) and not case.whole:
        if case.fresh:
            last = runner.ask("peak")
            kept["peak_mib"], kept["before_mib"] = last["peak_mib"], last["before_mib"]
        if profiled:
            kept["profile"] = runner.ask("profile", rows=10)["operations"]
