"""Everything hostile: kills at every file operation and at random moments, and mutated files of every kind that is read.

    python tests/hostile [--minutes 50] [--seed 0] [--only NAME ...]

Each suite gets a share of the time and works through it in rounds, each in a separate process with its own seed. What
is wrong is printed as it is found, a table at the end; the exit status is 1 if anything was. A seed gives the same
inputs each time: `python tests/hostile --suite NAME --seed SEED --count N` repeats one round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

GROWTH = 2 << 30  # bytes of addresses by which a process that reads hostile files may grow


@dataclass
class Tally:
    """What came of a suite: inputs tried, those that were refused (if a suite tells), kills, and what was wrong."""

    inputs: int = 0
    refused: int = 0
    kills: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.inputs, self.refused = self.inputs + other.inputs, self.refused + other.refused
        self.kills, self.seconds = self.kills + other.kills, self.seconds + other.seconds
        self.wrong += other.wrong


# -- the suites: a seed and a number of inputs in, a tally out -----------------------------------------------------------


def _limited() -> None:
    """Bound the memory of this process, which has loaded what it needs."""
    with suppress(ImportError):  # Windows has no limits of this kind
        import resource

        import psutil

        most = psutil.Process().memory_info().vms + GROWTH
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _outcomes(found: list[tuple[str, float]], names: list[str], slow: float) -> Tally:
    """Of a suite that says "works", "refused: …" or "crash: …", and after how long."""
    tally = Tally(len(found), sum(how.startswith("refused") for how, _ in found))
    for name, (how, seconds) in zip(names, found, strict=True):
        if how.startswith("crash") or seconds > slow:
            tally.wrong.append(f"{name}: {how} after {seconds:.1f} s")
    return tally


def configs(seed: int, count: int) -> Tally:
    """`config.json` of every Hub family, by itself and beside weights."""
    from configs import check, check_stored, mutants, stored

    from qkv.io.families import FAMILIES

    _limited()
    tally = Tally(count, wrong=[wrong for one in mutants(seed, count) if (wrong := check(one)) is not None])
    with tempfile.TemporaryDirectory() as folder:
        for name in FAMILIES:
            stored(name, Path(folder) / name)
        for one in mutants(seed + 1, count // 20):
            tally.inputs += 1
            tally.wrong += filter(None, [check_stored(one, Path(folder) / one.family)])
    return tally


def recipes(seed: int, count: int) -> Tally:
    """Recipes with values of other types and sizes, and YAML that grows."""
    from recipes import bombs, check, check_text, mutants

    _limited()
    wrong = [said for name, text in bombs() if (said := check_text(name, text)) is not None]
    return Tally(count, wrong=wrong + [said for one in mutants(seed, count) if (said := check(one)) is not None])


def texts(seed: int, count: int) -> Tally:
    """Tables, JSON lines, running text and series, plain and compressed."""
    from texts import check, mutants

    _limited()
    with tempfile.TemporaryDirectory() as folder:
        found = (check(name, content, Path(folder)) for name, content in mutants(seed, count))
        return Tally(count, wrong=[said for said in found if said is not None])


def json_files(seed: int, count: int) -> Tally:
    """JSON files of data, tokenizers and models whose schema is broken."""
    from json_files import check, mutants

    _limited()
    return Tally(count, wrong=[wrong for one in mutants(seed, count) if (wrong := check(one)) is not None])


def media(seed: int, count: int) -> Tally:
    """Pictures, videos, sounds, MIDI and IDX files."""
    from media import SECONDS, bombs, check, mutants

    files = [*bombs(), *mutants(seed, count)]
    return _outcomes(check(files), [file.name for file in files], SECONDS / 2)


def tokenizers(seed: int, count: int) -> Tally:
    """`tokenizer.json` files."""
    from tokenizer_files import BOMBS, SECONDS, check, mutants

    tally, made = Tally(), itertools.chain(BOMBS.values(), mutants(seed, count))
    while files := list(itertools.islice(made, 50)):  # a thousand would fill 8 GiB
        tally.add(_outcomes(check(files), [text[:300] for text in files], SECONDS / 2))
    return tally


def templates(seed: int, count: int) -> Tally:
    """Chat templates made to run for ever or to take all memory; always the same ones."""
    from templates import MOST_SECONDS, TEMPLATES, outcome

    tally = Tally()
    for name in TEMPLATES:
        found = outcome(name)
        tally.inputs += 1
        tally.refused += found.how == "refused"
        if found.how == "crash" or found.seconds > MOST_SECONDS:
            tally.wrong.append(f"{name}: {found}")
    return tally


def directories(seed: int, count: int) -> Tally:
    """Run directories with one damaged file, and seven commands on them."""
    from run_directories import SECONDS, check, make, mutants

    with tempfile.TemporaryDirectory() as folder:
        run = make(Path(folder))
        damages = list(mutants(run, seed, count))
        names = [f"{one.command} on {one.file}, {one.data[:200]!r}" for one in damages]
        return _outcomes(check(run, damages), names, SECONDS / 2)


def kills(*options: str, script: str = "kills.py") -> Callable[[int, int], Tally]:
    """Trainings that are killed and resumed, compared with one that nobody disturbed."""

    def suite(seed: int, count: int) -> Tally:
        with tempfile.TemporaryDirectory() as folder:
            at_random = "moments" in options or script in ("rank_kills.py", "rank_ends.py")
            scale = ["--kills" if at_random else "--every", str(count)]
            command = [sys.executable, str(HERE / script), folder, "--seed", str(seed), *scale, *options]
            done = subprocess.run(command, capture_output=True, text=True)
        if not done.stdout:
            return Tally(wrong=[f"{command} said nothing: {done.stderr[-500:]}"])
        found = json.loads(done.stdout.splitlines()[-1])
        return Tally(found["runs"], 0, found["kills"], wrong=found["wrong"])

    return suite


@dataclass(frozen=True)
class Suite:
    run: Callable[[int, int], Tally]
    count: int  # inputs of a round; of `saves` and `runs` every how many operations a kill comes
    share: float  # of the time
    repeats: bool = True  # whether another seed gives other inputs


SUITES = {
    "saves": Suite(kills("--only", "saves"), 1, 0.1, repeats=False),
    "runs": Suite(kills("--only", "runs"), 3, 0.15, repeats=False),
    "moments": Suite(kills("--only", "moments"), 10, 0.1),
    "replacements": Suite(kills(script="replacements.py"), 3, 0.1, repeats=False),
    "pushes": Suite(kills(script="pushes.py"), 3, 0.02, repeats=False),
    "ranks": Suite(kills(script="rank_kills.py"), 50, 0.05),
    "rank-ends": Suite(kills("--stops", "4", script="rank_ends.py"), 10, 0.05),
    "directories": Suite(directories, 300, 0.15),
    "configs": Suite(configs, 2000, 0.08),
    "tokenizers": Suite(tokenizers, 1000, 0.08),
    "templates": Suite(templates, 1, 0.02, repeats=False),
    "recipes": Suite(recipes, 1000, 0.07),
    "texts": Suite(texts, 1000, 0.07),
    "media": Suite(media, 2000, 0.06),
    "json-files": Suite(json_files, 2000, 0.06),
}


def rounds(name: str, seed: int, seconds: float) -> Iterator[Tally]:
    """Rounds of a suite until its time is over; the first is always made."""
    began, number = time.monotonic(), 0
    while number == 0 or (SUITES[name].repeats and time.monotonic() - began < seconds):
        tally = _round(name, seed + 1000 * number, seconds)
        yield tally
        if not tally.inputs:  # it could not be run
            return
        number += 1


def _round(name: str, seed: int, seconds: float) -> Tally:
    """One round in a separate process, which is ended if it hangs."""
    command = [sys.executable, str(HERE), "--suite", name, "--seed", str(seed), "--count", str(SUITES[name].count)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
    began, repeat = time.monotonic(), " ".join(command[1:])
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=4 * seconds + 600)
    except subprocess.TimeoutExpired:
        return Tally(seconds=time.monotonic() - began, wrong=[f"hang: {repeat}"])
    if done.returncode or not done.stdout:
        return Tally(
            seconds=time.monotonic() - began,
            wrong=[f"crash: {repeat} ended with {done.returncode}: {done.stderr[-1000:]}"],
        )
    return Tally(**json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--minutes", type=float, default=50.0)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--only", nargs="*", choices=SUITES, default=list(SUITES))
    asked.add_argument("--suite", choices=SUITES, help=argparse.SUPPRESS)
    asked.add_argument("--count", type=int, default=100, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.suite:
        began = time.monotonic()
        tally = SUITES[given.suite].run(given.seed, given.count)
        tally.seconds = time.monotonic() - began
        print(json.dumps(tally.__dict__))
        return 0
    whole = sum(SUITES[name].share for name in given.only)
    tallies: dict[str, Tally] = {}
    for name in given.only:
        tallies[name] = Tally()
        for tally in rounds(name, given.seed, 60 * given.minutes * SUITES[name].share / whole):
            tallies[name].add(tally)
            for wrong in tally.wrong:
                print(f"{name}: {wrong}", flush=True)
        print(_row(name, tallies[name]), flush=True)
    print("\n" + "\n".join([HEADER, *(_row(name, tally) for name, tally in tallies.items())]))
    return int(any(tally.wrong for tally in tallies.values()))


HEADER = "| suite | inputs | kills | wrong | seconds |\n|---|---:|---:|---:|---:|"


def _row(name: str, tally: Tally) -> str:
    return f"| {name} | {tally.inputs:,} | {tally.kills:,} | {len(tally.wrong)} | {tally.seconds:,.0f} |"


if __name__ == "__main__":
    sys.exit(main())
