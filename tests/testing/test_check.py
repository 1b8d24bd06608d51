"""`check` finds the checks of a part by its role, and says what it did not check."""

from __future__ import annotations

from typing import Any

import pytest

import qkv
from qkv.nn.kv_cache.kinds import CacheKind
from qkv.testing import check


class Lossy(qkv.Norm, kind="mutant-lossy"):
    """Its JSON form leaves a field out."""

    eps: float = 1e-5

    def _to_json_field(self, name: str) -> Any:
        return 1e-5


def test_a_field_lost_in_json_is_found() -> None:
    report = check(Lossy(eps=0.1))
    assert report.failures[0].name == "JSON form" and "is read back as" in report.failures[0].reason


def test_a_role_that_is_not_checked_says_so() -> None:
    report = check(CacheKind.from_dict({"kind": "full"}))
    assert [check.outcome for check in report.checks] == ["passed", "not checked"] and "patterns" in report.checks[
        1
    ].reason


def test_only_parts_are_checked() -> None:
    with pytest.raises(
        ValueError, match=r"check takes a part, a value of a subclass of qkv.Spec, or a metric, not str"
    ):
        check("rotary")  # type: ignore[arg-type]
