"""`python -m bench real`: measure the recipes on real data, and write docs/results.md from the kept results."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from qkv.lab.reproduce.table import page as reproduced

from . import COMMANDS, DATA, commands, entries, keep, kept, machine, measure, measure_documented, table
from .plot import figure

DOCS = machine.ROOT / "docs"
PAGES = (DOCS / "results.md", COMMANDS)
_PLACE = re.compile(r"(<!-- bench:(real|real-commands|reproduce) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench real", description=__doc__)
    what = "the entry of this name, or those with all these words in name or title"
    parser.add_argument("--only", default="", metavar="WORDS", help=what)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with the data sets")
    parser.add_argument("--list", action="store_true", help="show the entries, and measure nothing")
    documented = "run the documented commands alone, and add their figures to the kept results"
    parser.add_argument("--documented", action="store_true", help=documented)
    parser.add_argument("--render", action="store_true", help="only write the page again")
    given = parser.parse_args(arguments)
    for entry in [] if given.render else entries(given.only):
        if given.list:
            print(f"{entry.name}: {entry.title}")
        elif (why := entry.lacks(given.data)) is not None:
            print(f"{entry.name} is left out: {why}", file=sys.stderr)
        elif given.documented:
            if entry.documented:
                found = measure_documented(entry, given.data.resolve())
                print(f"{keep(found)}: {found.documented}, beside {found.baselines}", flush=True)
        else:
            found = measure(entry, given.data.resolve())
            print(f"{keep(found)}: {found.figures}, beside {found.baselines}")
    if not given.list:
        render()
    return 0


def rendered(page: str) -> str:
    """The page with what is measured written anew."""
    parts = {"real": table, "real-commands": commands, "reproduce": lambda found: reproduced()}
    return _PLACE.sub(lambda m: f"{m[1]}\n{parts[m[2]](kept())}\n{m[3]}", page)


def render() -> None:
    for page in PAGES:
        page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")
    for file, svg in figure(kept()).items():
        (DOCS / file).write_text(svg, encoding="utf-8")
