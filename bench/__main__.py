"""Measure qkv beside what one would pick instead, keep the results in bench/results/, and renew the docs.

    python -m bench                          every table
    python -m bench train                    one of them
    python -m bench train --only "50257 eager own"    the cases with these words in their titles (--list shows titles)
    python -m bench multi30k --quick         does the harness work? tiny sizes, nothing kept
    python -m bench real                     training on real data, for docs/results.md (--help has its own options)
    python -m bench cost                     predicted times beside measured ones, for docs/cost.md
    python -m bench threads                  one, two and chosen threads, for docs/machine.md
    python -m bench scale                    two ranks beside one, for docs/scale.md
    python -m bench encoding                 BERT-base and ViT-B/16 beside other libraries, for docs/performance.md
    python -m bench fused                    decoding by the fused step beside the modules
    python -m bench gpu                      kernels, steps, decoding and memory on one GPU; --dry-run tries it on a CPU
    python -m bench leaderboards             lm-evaluation-harness's requests beside its own backend
    python -m bench onednn                   products in fp32 by oneDNN and by MKL, for docs/machine.md
    python -m bench planner POINTS           the planner beside published runs in a JSON file, for docs/scale.md
    python -m bench prompts                  reading of prompts beside large products, for docs/performance.md
    python -m bench products                 products of few rows beside memory bandwidth, for bench/products.md
    python -m bench serving                  decoding beside other libraries, for docs/performance.md
    python -m bench transcribing             Whisper beside faster-whisper, for docs/performance.md
    python -m bench served                   servers under load: beside each other, and beside the library
    python -m bench soak RUN …               thousands of mixed requests with hang-ups and bad ones, for one server
    python -m bench translating              translation beside other libraries, for docs/performance.md
    python -m bench batching                 tokenizing and batching beside training's steps, for docs/performance.md
    python -m bench start                    time to the first token, for docs/performance.md
    python -m bench quantization RUN         perplexity with weights of 8 and 4 bits, for docs/quantization.md
    python -m bench small-english BOOKS      trains the model that comes with the package, and writes its card
    python -m bench speculation RUN          speculative decoding beside plain decoding, for docs/performance.md
    python -m bench recording                recording of attention during generation, for docs/look.md
    python -m bench unigram --peer PYTHON    unigram training beside SentencePiece, for docs/tokenizers.md
    python -m bench terminal TYPESCRIPT FILE.svg      a picture of a recorded command, for the README
    python -m bench pictures                 the pictures of pages in docs/ (--help)
    python -m bench render                   only write the pages and figures again from what is kept

What is measured for one table goes to bench/results/TABLE-DATE.json. With --only it goes into the newest file of the
table, in the place of what was measured of these cases before, if machine and versions are the same. Until all cases
are measured, results are kept in TABLE-DATE.json.part; `python -m bench TABLE --resume` continues such a run.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from . import machine, peers, render
from .batching import main as batching
from .cost.command import main as cost
from .encoding.command import main as encoding
from .fused import main as fused
from .gpu import main as gpu
from .leaderboards import main as leaderboards
from .lockstep import Case, measure, ring
from .onednn import main as onednn
from .pictures import main as pictures
from .planner import main as planner
from .products import main as products
from .prompts import main as prompts
from .quantization import main as quantization
from .real.command import main as real
from .recording import main as recording
from .results import RESULTS, Result, latest
from .scale.command import main as scale
from .served.command import main as served
from .serving.command import main as serving
from .small_english import main as small_english
from .soak import main as soak
from .speculation import main as speculation
from .start import main as start
from .tables import TABLES
from .tables.table import Table, probe
from .terminal import main as terminal
from .threads.command import main as threads
from .transcribing.command import main as transcribing
from .translating.command import main as translating
from .unigram import main as unigram

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "batching": batching,
    "cost": cost,
    "encoding": encoding,
    "fused": fused,
    "gpu": gpu,
    "leaderboards": leaderboards,
    "onednn": onednn,
    "pictures": pictures,
    "planner": planner,
    "products": products,
    "prompts": prompts,
    "quantization": quantization,
    "real": real,
    "recording": recording,
    "scale": scale,
    "served": served,
    "serving": serving,
    "small-english": small_english,
    "soak": soak,
    "speculation": speculation,
    "start": start,
    "terminal": terminal,
    "threads": threads,
    "transcribing": transcribing,
    "translating": translating,
    "unigram": unigram,
}


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] and words[0] in COMMANDS:
        return COMMANDS[words[0]](words[1:])
    given = _parse(arguments)
    if given.table == "render":
        render.write()
        return 0
    for name in TABLES if given.table == "all" else [given.table]:
        table = TABLES[name]
        if table.lacks():
            print(f"{name} is left out: {table.lacks()}", file=sys.stderr)
        elif given.list:
            print("\n".join(case.title for case in chosen(table, given.quick, given.only)))
        else:
            _measure(table, given)
    return 0


def _measure(table: Table, given: argparse.Namespace) -> None:
    """Measure a table and show it; keep it and renew the docs unless it was only tried."""
    cases = chosen(table, given.quick, given.only)
    if not cases:
        raise SystemExit(f"no case of {table.name} has all of {given.only.split()} in its title; --list shows them")
    if not given.quick:
        environments = {contender.environment for case in cases for contender in case.contenders}
        peers.make_all(sorted(environments - {peers.OURS}))
    out = given.out or (None if given.quick else RESULTS / f"{table.name}-{datetime.now(UTC):%Y-%m-%d}.json")
    part = _unfinished(table) if given.resume else out and out.with_name(out.name + ".part")
    done = Result.read(part) if given.resume and part is not None else None
    result = run(table, cases, given.rounds, given.quick, given.threads, given.note, part, done)
    earlier = latest(table.name) if given.only and not given.quick and given.out is None else None
    if earlier is not None and (kept := Result.read(earlier)).comparable(result):
        order = [case.key for case in table.cases(given.quick)]
        result, out = kept.renewed(result, order), earlier
    if out is not None:
        result.write(out)
        if part is not None:
            part.unlink(missing_ok=True)
        print(f"{out} written")
    print(render.render(result))
    if not given.quick:
        render.write()


def _unfinished(table: Table) -> Path:
    """The newest results file of a table whose measurement was interrupted."""
    found = latest(table.name, ending=".json.part")
    if found is None:
        raise SystemExit(f"there is no interrupted run of {table.name} to continue: leave --resume out")
    return found


def chosen(table: Table, quick: bool, only: str = "") -> list[Case]:
    """The cases of a table with all of these words in their titles."""
    return [case for case in table.cases(quick) if all(word in case.title for word in only.split())]


def run(
    table: Table,
    cases: Sequence[Case],
    rounds: int | None,
    quick: bool,
    threads: int,
    notes: Sequence[str] = (),
    part: Path | None = None,
    done: Result | None = None,
) -> Result:
    """Measure cases of a table, and say on standard error how it goes.

    part: the file to write after each case. done: results of an interrupted run, whose cases are not measured again.
    """
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
    left = [case for case in cases if done is None or not done.has(case.key)]
    merged = result if done is None else done
    with ring(threads) as entered:
        for i, case in enumerate(left, len(cases) - len(left) + 1):
            print(f"{table.name} {i}/{len(cases)}: {case.title}", file=sys.stderr, flush=True)
            result.cases.append(measure(case, entered, result.rounds, probe(quick)))
            result.versions = dict(entered.versions)
            result.load_after = machine.load()
            if done is not None:
                merged = _merged(done, result, cases)
            if part is not None:
                merged.write(part)
    return merged


def _merged(done: Result, result: Result, cases: Sequence[Case]) -> Result:
    """The results of an interrupted run and of its continuation."""
    if not done.comparable(result):
        raise SystemExit("the interrupted run had another machine or other versions: leave --resume out")
    return done.renewed(result, [case.key for case in cases])


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", nargs="?", default="all", choices=[*TABLES, "all", "render"])
    parser.add_argument("--rounds", type=int, help="how often each contender takes its turn")
    parser.add_argument(
        "--only",
        default="",
        metavar="WORDS",
        help="only cases with all these words in their titles, into the newest file",
    )
    parser.add_argument("--list", action="store_true", help="show the titles of the cases, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two rounds: does the harness work?")
    parser.add_argument("--out", type=Path, help="the results file (default: bench/results/TABLE-DATE.json)")
    parser.add_argument("--threads", type=int, default=2, help="for every contender (default: 2)")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run of the table")
    parser.add_argument("--note", action="append", default=[], help="a sentence to keep with the results")
    given = parser.parse_args(arguments)
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds is at least 1")
    if given.table == "all" and (given.out is not None or given.only or given.resume):
        parser.error("--out, --only and --resume are for one table; 'all' writes a file for each")
    return given


if __name__ == "__main__":
    sys.exit(main())
