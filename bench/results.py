"""Results as files: one JSON for each table and day, with everything that a reader needs to judge it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass
class Result:
    """A table as it was measured.

    cases: the records that `lockstep.measure` gives, every single reading in them.
    load_before, load_after: the machine's load average; what the contenders themselves add is in the second.
    """

    table: str
    date: str
    command: str
    machine: dict[str, Any]
    code: dict[str, Any]
    threads: int
    rounds: int
    quick: bool
    load_before: float
    load_after: float = 0.0
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_rounded(asdict(self)), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Result:
        return cls(**json.loads(path.read_text()))

    def comparable(self, later: Result) -> bool:
        """Whether the two can stand in one table: of one kind of machine, with the same libraries."""
        shared = self.versions.keys() & later.versions.keys()
        return (
            self.machine["processor"] == later.machine["processor"]
            and self.threads == later.threads
            and all(self.versions[name] == later.versions[name] for name in shared)
        )

    def renewed(self, later: Result, order: list[dict[str, Any]]) -> Result:
        """With the cases of a later measurement in the place of the earlier ones or beside them, and a note that says so.

        The cases stand in the `order` of these keys.
        """
        now = {_name(case["key"]): case for case in later.cases}
        found = {_name(case["key"]): case for case in self.cases} | now
        keys = dict.fromkeys([*map(_name, order), *found])
        cases = [found[key] for key in keys if key in found]
        note = (
            f"{len(now)} of {len(cases)} cases were measured {later.date} with `{later.command}` "
            f"(sources {later.code['digest']}, load average {later.load_before} before)."
        )
        versions = {**self.versions, **later.versions}
        return replace(self, cases=cases, versions=versions, notes=[*self.notes, *later.notes, note])

    def has(self, key: dict[str, Any]) -> bool:
        """Whether the case with exactly this key was measured."""
        return any(_name(case["key"]) == _name(key) for case in self.cases)

    def find(self, **key: Any) -> Record | None:
        """The first case whose key has these values."""
        return next(iter(self.records(**key)), None)

    def records(self, **key: Any) -> list[Record]:
        """Every case whose key has these values."""
        found = [case for case in self.cases if all(case["key"].get(name) == value for name, value in key.items())]
        return [Record(case) for case in found]

    def keys(self, name: str) -> list[Any]:
        """The values that a part of the key takes, in the order of the cases."""
        return list(dict.fromkeys(case["key"][name] for case in self.cases if name in case["key"]))


class Record:
    """One case of a result, asked for numbers."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case, self.key = case, case["key"]

    @property
    def names(self) -> list[str]:
        return list(self.case["contenders"])

    def all(self, name: str, what: str = "ms") -> list[float]:
        return [reading[what] for reading in self.case["contenders"][name]["rounds"]]

    def median(self, name: str, what: str = "ms") -> float:
        return median(self.all(name, what))

    def told(self, name: str, what: str) -> list[float]:
        """A value that the contender itself gave, round by round."""
        return [reading["values"][what] for reading in self.case["contenders"][name]["rounds"]]

    def rates(self, name: str, what: str) -> list[float]:
        """So many of what it counted a second, round by round."""
        return [1e3 * n / ms for n, ms in zip(self.told(name, what), self.all(name), strict=True)]

    def ratios(self, name: str, beside: str) -> list[float]:
        """Time of the one by time of the other, round by round."""
        return [a / b for a, b in zip(self.all(name), self.all(beside), strict=True)]

    def fastest(self, but: str) -> str | None:
        """The contender with the least median, `but` not counted."""
        return min((name for name in self.names if name != but), key=self.median, default=None)

    def fact(self, name: str, fact: str) -> Any:
        return self.case["contenders"][name]["facts"].get(fact)

    def memory(self, name: str, what: str = "peak_mib") -> float:
        return self.case["contenders"][name][what]

    def profile(self, name: str) -> list[tuple[str, float]]:
        return [tuple(row) for row in self.case["contenders"].get(name, {}).get("profile", [])]

    def probe(self, what: str) -> float:
        return median(reading[what] for reading in self.case["probes"])


def _name(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def latest(table: str, folder: Path = RESULTS, ending: str = ".json") -> Path | None:
    """The newest results file of a table, by the date in it."""
    found = [path for path in folder.glob(f"*{ending}") if json.loads(path.read_text())["table"] == table]
    return max(found, key=lambda path: json.loads(path.read_text())["date"], default=None)


def _rounded(value: Any) -> Any:
    """Four significant digits are more than a shared machine gives."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
