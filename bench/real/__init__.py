"""Training on real data: what the recipes reach on published data sets, beside baselines, one YAML file a figure.

title:     the line in the table
data:      the folder of ../shared/data (or of --data) that it needs; left out, with a word, if it is not there
threads:   what it computes with (default: 1)
prepare:   a shell command that turns odd archives into files that our sources read (optional)
steps:     shell commands, in order; {data} is the folder, {all} that of all data, {out} a scratch folder for runs
figures:   [{name, run, metric}]: what of {out}/RUN/evaluation.json goes into the table
baselines: shell commands that print one line of JSON at their end: {"name": …, a figure's name: …}
published: what the literature has for a model of that size, and where (optional)
documented: the command of the recipe's own comment, nothing tuned; its figures come from {out}/documented (optional)
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from .. import baselines as packaged
from .. import machine

ENTRIES = Path(__file__).resolve().parent
KEPT = ENTRIES.parent / "results" / "real"
DATA = machine.ROOT.parent / "shared" / "data"
SCRATCH = machine.ROOT / "runs" / "real"
COMMANDS = ENTRIES.parent / "results-commands.md"


@dataclass(frozen=True)
class Entry:
    """One figure of the table, as its file says; see above."""

    name: str
    title: str
    steps: tuple[str, ...]
    figures: tuple[dict[str, str], ...]
    data: str = ""
    threads: int = 1
    prepare: str = ""
    baselines: tuple[str, ...] = ()
    published: str = ""
    documented: str = ""

    @classmethod
    def read(cls, path: Path) -> Entry:
        said = yaml.safe_load(path.read_text(encoding="utf-8"))
        lists = {key: tuple(said[key]) for key in ("steps", "figures", "baselines") if key in said}
        return cls(**{"name": path.stem, **said, **lists})

    def lacks(self, data: Path) -> str | None:
        """Why it can't be measured here."""
        return None if not self.data or (data / self.data).is_dir() else f"there is no {data / self.data}"


@dataclass
class Found:
    """What an entry gave: figures and baselines by name, where and how."""

    entry: dict[str, Any]
    date: str
    machine: dict[str, Any]
    code: dict[str, Any]
    seconds: list[float] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)
    baselines: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    documented: dict[str, float] = field(default_factory=dict)
    documented_how: dict[str, Any] = field(default_factory=dict)


def entries(only: str = "") -> list[Entry]:
    """The entry of this name; else every one with all of these words in its name or title."""
    found = [Entry.read(path) for path in sorted(ENTRIES.glob("*.yaml"))]
    named = [one for one in found if one.name == only]
    return named or [one for one in found if all(word in f"{one.name} {one.title}" for word in only.split())]


def baselines() -> dict[str, Callable[[list[str]], dict[str, Any]]]:
    """Every baseline by its name."""
    found: dict[str, Callable[[list[str]], dict[str, Any]]] = {}
    for module in pkgutil.iter_modules(packaged.__path__):
        if module.name != "__main__":
            found |= importlib.import_module(f"{packaged.__name__}.{module.name}").COMMANDS
    return found


def measure(entry: Entry, data: Path = DATA, scratch: Path = SCRATCH) -> Found:
    """Train, evaluate, and run the baselines. Raises SystemExit if a command fails."""
    out = _cleared(entry, scratch)
    found = Found(asdict(entry), _now(), machine.describe(), machine.code())
    for step in steps(entry, data, scratch):
        began = time.monotonic()
        _run(step, entry.threads)
        found.seconds.append(time.monotonic() - began)
    for figure in entry.figures:
        said = json.loads((out / figure["run"] / "evaluation.json").read_text())
        found.figures[figure["name"]] = said["metrics"][figure["metric"]]
        found.examples[figure["name"]] = said["examples"]
    for command in entry.baselines:
        printed = _run(command.format(**places(entry, data, scratch)), entry.threads)
        found.baselines.append(json.loads(printed.strip().splitlines()[-1]))
    found.versions = {"python": sys.version.split()[0], "torch": _version("torch")}
    return found


def measure_documented(entry: Entry, data: Path = DATA, scratch: Path = SCRATCH) -> Found:
    """Run the documented command alone, and add its figures to the kept result. Raises SystemExit if it fails."""
    out = _cleared(entry, scratch)
    found = Found(**json.loads((KEPT / f"{entry.name}.json").read_text()))
    if entry.prepare:
        _run(entry.prepare.format(**places(entry, data, scratch)), entry.threads)
    began = time.monotonic()
    _run(entry.documented.format(**places(entry, data, scratch)), entry.threads)
    seconds = time.monotonic() - began
    result = json.loads((out / "documented" / "evaluation.json").read_text())
    found.documented = {figure["name"]: result["metrics"][figure["metric"]] for figure in entry.figures}
    found.documented_how = {
        "command": entry.documented,
        "date": _now(),
        "seconds": seconds,
        "examples": result["examples"],
        "code": machine.code(),
    }
    return found


def _cleared(entry: Entry, scratch: Path) -> Path:
    out = scratch / entry.name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return out


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def places(entry: Entry, data: Path, scratch: Path) -> dict[str, str]:
    """What the names in braces stand for."""
    return {"data": str(data / entry.data), "all": str(data), "out": str(scratch / entry.name)}


def steps(entry: Entry, data: Path, scratch: Path) -> list[str]:
    """The commands of an entry, in order."""
    return [step.format(**places(entry, data, scratch)) for step in (entry.prepare, *entry.steps) if step]


def keep(found: Found) -> Path:
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{found.entry['name']}.json"
    path.write_text(json.dumps(asdict(found), indent=1) + "\n")
    return path


def _run(command: str, threads: int) -> str:
    """A shell command with this Python's programs first; what it prints, unless it fails."""
    bin_ = Path(sys.executable).parent
    where = {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": str(threads)}
    print(f"$ {command}", file=sys.stderr, flush=True)
    done = subprocess.run(
        ["bash", "-c", command], cwd=machine.ROOT, env={**os.environ, **where}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{command}\nended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def shown(value: float, name: str) -> str:
    """A number for the table: shares in percent, correlations and losses as they are."""
    plain = ("loss", "nll", "entropy", "spearman", "pearson", "mcc", "mse", "mae", "bleu", "perplexity", "rouge")
    return f"{value:.3f}" if any(word in name.lower() for word in plain) or not -1 <= value <= 1 else f"{value:.1%}"


def kept() -> list[Found]:
    return [Found(**json.loads(path.read_text())) for path in sorted(KEPT.glob("*.json"))]


def table(all_: Sequence[Found]) -> str:
    """The figures as Markdown, each beside its baselines, with a link to its commands."""
    lines = [
        "| data | qkv | documented command alone | baselines | published | minutes | test examples |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in all_:
        ours = ", ".join(f"{name} **{shown(value, name)}**" for name, value in one.figures.items())
        plain = ", ".join(f"{name} {shown(value, name)}" for name, value in one.documented.items())
        if plain:
            plain += f" ({one.documented_how['seconds'] / 60:.1f} min)"
        lines.append(
            f"| [{one.entry['title']}](../bench/{COMMANDS.name}#{one.entry['name']}) | {ours} | {plain} | {_beside(one)} "
            f"| {one.entry['published']} | {sum(one.seconds) / 60:.1f} | {max(one.examples.values(), default=0):,} |"
        )
    return "\n".join([*lines, ""])


def commands(all_: Sequence[Found]) -> str:
    """When, where and by which commands each was measured, as Markdown."""
    return "\n".join(map(_how, all_))


def _beside(one: Found) -> str:
    said = []
    for baseline in one.baselines:
        numbers = [f"{name} {shown(v, name)}" for name, v in baseline.items() if isinstance(v, float | int)]
        said.append(f"{baseline['name']}: {', '.join(numbers)}")
    return "; ".join(said)


def _how(one: Found) -> str:
    cores = f"{one.entry['threads']} thread{'s' if one.entry['threads'] > 1 else ''}"
    made = steps(Entry(**one.entry), Path("../shared/data"), Path("runs/real"))
    return "\n".join(
        [
            f'### <a id="{one.entry["name"]}"></a>{one.entry["title"]}',
            "",
            f"{one.date}, {one.machine['processor']}, {cores}, torch {one.versions['torch']}, "
            f"sources {one.code['digest']}: `python -m bench real --only {one.entry['name']}`, which runs",
            "",
            "```text",
            *made,
            "```",
            "",
            *_documented(one),
        ]
    )


def _documented(one: Found) -> list[str]:
    """When and how the documented command alone was measured; nothing if it was not."""
    if not (how := one.documented_how):
        return []
    entry = Entry(**one.entry)
    command = how["command"].format(**places(entry, Path("../shared/data"), Path("runs/real")))
    where = f"{how['date']}, sources {how['code']['digest']}, {how['examples']:,} examples"
    return [f"The documented command alone ({where}):", "", "```text", command, "```", ""]
