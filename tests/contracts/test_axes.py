"""That the axes hold everything which is registered, and that the selection from them is what it says."""

from __future__ import annotations

import zlib
from itertools import combinations, product

import pytest
from axes import PARTIAL, PATTERNS, Example, backends, biases, missing, patterns, positions, sees_ahead, words
from selection import SHARE, Combination, Contract, sample, select
from small import PREFIXED

from qkv.nn.kernels.backends import BACKENDS
from qkv.nn.patterns.basic import causal, full, prefix, window


def test_every_registered_kind_has_an_example() -> None:
    assert not missing(), "\n".join(missing())


def test_the_axes_hold_every_example() -> None:
    assert {example.value for example in patterns()} >= {value for row in PATTERNS.values() for value in row}
    assert {example.value for example in backends()} == {*BACKENDS, "auto"} - {*PARTIAL}
    assert {"alibi", "t5", "dense"} <= {example.label for example in biases()}
    assert len({example.label for example in positions()}) == len(positions())


@pytest.mark.parametrize("pattern", [full(), window(2, ahead=4), causal() | prefix(PREFIXED + 1), causal() | window(3)])
def test_patterns_that_see_ahead_are_recognized(pattern: object) -> None:
    assert sees_ahead(pattern, PREFIXED)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", [causal(), causal() & window(3), causal() | prefix(PREFIXED), causal() | prefix()])
def test_patterns_that_can_be_decoded_are_recognized(pattern: object) -> None:
    assert not sees_ahead(pattern, PREFIXED)  # type: ignore[arg-type]


def refuse(case: Combination) -> str | None:
    return "a never meets 1" if (case.x, case.y) == ("a", "1") else None


AXES = {"x": words("a", "b", "c"), "y": words("1", "2", "3", "4"), "z": words("p", "q"), "w": words("s", "t", "u")}


def test_the_selection_holds_every_possible_pair_and_nothing_impossible() -> None:
    chosen = select(AXES, refuse)
    for one, other in combinations(AXES, 2):
        wanted = {(a.value, b.value) for a, b in product(AXES[one], AXES[other])}
        wanted -= {("a", "1")} if (one, other) == ("x", "y") else set()
        assert {(getattr(case, one), getattr(case, other)) for case in chosen} == wanted
    assert len(chosen) < 20 < 3 * 4 * 2 * 3
    assert [str(case) for case in chosen] == [str(case) for case in select(AXES, refuse)]


def test_a_weaker_selection_holds_every_value() -> None:
    chosen = select(AXES, refuse, 1)
    assert len(chosen) == 4
    assert {case.w for case in chosen} == {"s", "t", "u"}


def test_the_fast_share_holds_every_value_and_contracts_share_the_pairs() -> None:
    axes = {"x": words(*range(8)), "y": words(*range(9)), "z": words("p", "q")}
    pairs = select(axes, lambda _: None)
    parts = [sample(pairs, name) for name in "abcdefghijkl"]
    for part in parts:
        assert len(pairs) / SHARE - 1 < len(part) < len(pairs) / 2
        assert all({getattr(case, axis) for case in part} == {e.value for e in values} for axis, values in axes.items())
    assert {str(case) for part in parts for case in part} == {str(case) for case in pairs}
    assert sample(pairs, "a") == parts[0]
    few = [p for p in Contract(axes, fast=0, share=4).parameters(slow=False, name="a") if p.values[0] is not None]
    assert len(few) == len(select(axes, lambda _: None, 1)[zlib.crc32(b"a") % 4 :: 4]) > 1


def test_the_slow_suite_runs_the_pairs_that_the_fast_one_leaves_out() -> None:
    contract = Contract(AXES, refuse, turned=["w"])
    everything = {str(p.values[0]) for p in contract.parameters(slow=True, name="x")}
    fast = {str(p.values[0]) for p in contract.parameters(slow=False, name="x")}
    assert fast < everything
    assert {str(case) for case in select(AXES, refuse)} <= everything
    unmarked = {str(p.values[0]) for p in contract.parameters(slow=True, name="x") if not p.marks}
    assert unmarked == {name for name in fast if name != "None"}


def test_a_contract_counts_what_it_refuses_and_takes_turns() -> None:
    contract = Contract(AXES, refuse, turned=["w"])
    assert contract.refused() == {"a never meets 1": 2 * 3}
    whole = [p for p in contract.parameters(slow=True) if p.values[0] is not None]
    main = {(p.values[0].x, p.values[0].y, p.values[0].z) for p in whole}
    assert len(main) == 3 * 4 * 2 - 2
    fast = [p for p in contract.parameters(slow=False) if p.values[0] is not None]
    assert len(fast) < len(whole)
    assert isinstance(AXES["x"][0], Example)
