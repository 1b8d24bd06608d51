"""Regular expressions that others wrote: as Python's, and they end."""

from __future__ import annotations

import re

import pytest

from qkv.core import expressions

ENDLESS = r"(a|aa)+$"
NAME = "a" * 60 + "!"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r".*\.(q|v)_proj", "model.layers.0.self_attn.q_proj"),
        (r"layers\.(?P<layer>\d+)\.", "model.layers.12.mlp"),
        (r"(?i)LAYERS", "layers.1"),
        (r"\bq\b|^x", "q_proj"),
        (r"(\w+)_(?=proj)", "k_proj"),
        ("", "anything"),
    ],
)
def test_results_match_re(pattern: str, text: str) -> None:
    for ours, theirs in ((expressions.match, re.match), (expressions.search, re.search)):
        found, expected = ours(pattern, text), theirs(pattern, text)
        assert (found and (found.span(), found.groups(), found.groupdict())) == (
            expected and (expected.span(), expected.groups(), expected.groupdict())
        )


@pytest.mark.parametrize("find", [expressions.match, expressions.search])
def test_an_endless_expression_is_refused(find: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "SECONDS", 0.05)
    with pytest.raises(ValueError, match=r"took longer than 0\.05 s on 'aaa.*without repetitions of repetitions"):
        find(ENDLESS, NAME)  # type: ignore[operator]


@pytest.mark.parametrize("pattern", ["(", "[a", "(?P<x", "a{2,1}", "(?<=a*)b"])
def test_what_is_no_expression_is_told(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        expressions.match(pattern, "a")
