"""Reports print a table, and raise for failures."""

from __future__ import annotations

import pytest

from qkv.testing import Check, Report
from qkv.testing.report import NotChecked, outcome_of


def raising(error: Exception) -> None:
    raise error


def test_an_exception_becomes_an_outcome_with_its_reason() -> None:
    assert outcome_of("a", lambda: None) == Check("a", "passed")
    assert outcome_of("a", lambda: raising(NotChecked("no cache"))) == Check("a", "not checked", "no cache")
    assert outcome_of("a", lambda: raising(AssertionError("apart"))) == Check("a", "failed", "apart")
    assert outcome_of("a", lambda: raising(KeyError("x"))) == Check("a", "failed", "KeyError: 'x'")


def test_a_table_and_its_failures() -> None:
    report = Report("Norm()", (Check("gradients", "passed"), Check("cost", "failed", "counts 3")))
    assert str(report).splitlines() == ["Norm()", "gradients  passed", "cost       failed       counts 3"]
    with pytest.raises(AssertionError, match=r"Norm\(\) failed 1 of 2 checks: cost: counts 3"):
        report.raise_for_failures()
    Report("Norm()", report.checks[:1]).raise_for_failures()
