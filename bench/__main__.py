"""`python -m bench TABLE …`: measure, keep the results, renew the page. `render` only renews the page."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from . import machine, peers, render
from .lockstep import measure, ring
from .results import RESULTS, Result, latest
from .tables import TABLES
from .tables.table import Table, probe


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    if given.table == "render":
        render.write()
        return 0
    if not given.quick:
        for peer in peers.PEERS:
            peers.make(peer)
    for name in TABLES if given.table == "all" else [given.table]:
        earlier = latest(name) if given.again else None
        result = run(TABLES[name], given.rounds, given.quick, given.threads, given.note, given.again)
        out = given.out or (None if given.quick else RESULTS / f"{name}-{result.date[:10]}.json")
        if earlier is not None:
            result, out = Result.read(earlier).renewed(result), given.out or earlier
        if out is not None:
            result.write(out)
            print(f"{out} written")
        print(render.render(result))
    if not given.quick and render.PAGE.exists():
        render.write()
    return 0


def run(
    table: Table, rounds: int | None, quick: bool, threads: int, notes: Sequence[str] = (), again: str = ""
) -> Result:
    """Measure the cases of a table (those with `again` in their titles), and say on standard error how it goes."""
    result = Result(
        table=table.name,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=shlex.join(["python", "-m", "bench", *sys.argv[1:]]),
        machine=machine.describe(),
        code=machine.code(),
        threads=threads,
        rounds=rounds or (2 if quick else table.rounds),
        quick=quick,
        load_before=machine.load(),
        notes=list(notes),
    )
    cases = [case for case in table.cases(quick) if again in case.title]
    with ring(threads) as entered:
        for i, case in enumerate(cases, 1):
            print(f"{table.name} {i}/{len(cases)}: {case.title}", file=sys.stderr, flush=True)
            result.cases.append(measure(case, entered, result.rounds, probe(quick)))
        result.versions = dict(entered.versions)
    result.load_after = machine.load()
    return result


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("table", nargs="?", default="all", choices=[*TABLES, "all", "render"])
    parser.add_argument("--rounds", type=int, help="how often each contender takes its turn")
    parser.add_argument(
        "--again", default="", metavar="TEXT", help="only cases with this in their titles, into the newest file"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two rounds: does the harness work?")
    parser.add_argument("--out", type=Path, help="the results file (default: bench/results/TABLE-DATE.json)")
    parser.add_argument("--threads", type=int, default=2, help="for every contender (default: 2)")
    parser.add_argument("--note", action="append", default=[], help="a sentence to keep with the results")
    given = parser.parse_args(arguments)
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds is at least 1")
    if given.table == "all" and (given.out is not None or given.again):
        parser.error("--out and --again are for one table; 'all' writes a file for each")
    return given


if __name__ == "__main__":
    sys.exit(main())
