"""The result of `qkv.testing.check`: an outcome for each check, printed as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["passed", "failed", "not checked"]


class NotChecked(Exception):
    """Raised by a check that does not apply to a part; its message says why."""


@dataclass(frozen=True)
class Check:
    """The outcome of one check, and the reason if it did not pass."""

    name: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """The outcomes of all checks of a part. `print(report)` shows a table."""

    part: str
    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome == "failed")

    def raise_for_failures(self) -> None:
        """Raise AssertionError, with the reason of each failed check, if any failed."""
        if self.failures:
            reasons = "; ".join(f"{check.name}: {check.reason}" for check in self.failures)
            raise AssertionError(f"{self.part} failed {len(self.failures)} of {len(self.checks)} checks: {reasons}")

    def __str__(self) -> str:
        width = max((len(check.name) for check in self.checks), default=0)
        rows = [f"{check.name:<{width}}  {check.outcome:<11}  {check.reason}".rstrip() for check in self.checks]
        return "\n".join([self.part, *rows])


def outcome_of(name: str, run: Callable[[], None]) -> Check:
    """Run one check. Any exception but `NotChecked` is a failure, with its message as the reason."""
    try:
        run()
    except NotChecked as reason:
        return Check(name, "not checked", str(reason))
    except AssertionError as error:
        return Check(name, "failed", str(error))
    except Exception as error:
        return Check(name, "failed", f"{type(error).__name__}: {error}")
    return Check(name, "passed")
