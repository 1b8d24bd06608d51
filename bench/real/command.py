"""`python -m bench real`: measure what real data give, and write docs/results.md from what is kept."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from . import DATA, entries, keep, kept, machine, measure, table

PAGE = machine.ROOT / "docs" / "results.md"
_PLACE = re.compile(r"(<!-- bench:real -->\n).*?(<!-- /bench -->)", re.DOTALL)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench real", description=__doc__)
    what = "the entry of this name, or those with all these words in name or title"
    parser.add_argument("--only", default="", metavar="WORDS", help=what)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with the data sets")
    parser.add_argument("--list", action="store_true", help="show the entries, and measure nothing")
    parser.add_argument("--render", action="store_true", help="only write the page again")
    given = parser.parse_args(arguments)
    for entry in [] if given.render else entries(given.only):
        if given.list:
            print(f"{entry.name}: {entry.title}")
        elif (why := entry.lacks(given.data)) is not None:
            print(f"{entry.name} is left out: {why}", file=sys.stderr)
        else:
            found = measure(entry, given.data.resolve())
            print(f"{keep(found)}: {found.figures}, beside {found.baselines}")
    if not given.list:
        render()
    return 0


def render(page: Path = PAGE) -> None:
    text = page.read_text(encoding="utf-8")
    page.write_text(_PLACE.sub(lambda m: f"{m[1]}\n{table(kept())}\n{m[2]}", text), encoding="utf-8")
