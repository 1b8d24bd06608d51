"""The contracts' part of pytest's closing report: how many combinations passed, and which were skipped for which reason.

Everything is read from the reports, which reach the controlling process under pytest-xdist too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import PurePath
from typing import Any

NAME = "contracts-summary"
HERE = "tests/contracts/"
_COUNTED = re.compile(r"(?:Skipped: )?(\d+) combinations: (.*)", re.DOTALL)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in ("passed", "failed", "error", "skipped", "xfailed"):
        for report in terminalreporter.stats.get(outcome, []):
            if HERE not in getattr(report, "nodeid", ""):
                continue
            contract = PurePath(report.nodeid.split("::")[0]).stem.removeprefix("test_").replace("_", " ")
            if outcome != "skipped":
                outcomes[contract][outcome] += 1
                continue
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            counted = _COUNTED.match(text)
            reason = counted[2] if counted else text.removeprefix("Skipped: ")
            reasons[contract][reason] += int(counted[1]) if counted else 1
    if outcomes or reasons:
        _write(terminalreporter, outcomes, reasons)


def _write(terminal: Any, outcomes: dict[str, Counter[str]], reasons: dict[str, Counter[str]]) -> None:
    terminal.section("contracts")
    for contract in sorted({*outcomes, *reasons}):
        counts = outcomes[contract]
        total = sum(counts.values())
        bad = ", ".join(f"{counts[kind]:,} {kind}" for kind in ("failed", "error", "xfailed") if counts[kind])
        skipped = sum(reasons[contract].values())
        line = f"{contract:20} {counts['passed']:6,} of {total:,} combinations passed"
        line += f", {bad}" if bad else ""
        terminal.write_line(line + (f"; {skipped:,} skipped:" if skipped else ""), red=bool(bad))
        for reason, count in reasons[contract].most_common():
            terminal.write_line(f"{'':20} {count:6,} × {reason}")
