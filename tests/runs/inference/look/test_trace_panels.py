"""Panels of searches: the tree of beams and the table of choices."""

from __future__ import annotations

from qkv.generation.trace import Beam, BeamStep, Stage, TokenChoice, Trace
from qkv.runs.inference.look.trace_panels import beam_tree, search_panels

STEPS = [
    BeamStep((Beam(0, 1, -0.1), Beam(0, 2, -0.5)), ()),
    BeamStep((Beam(0, 3, -0.2), Beam(0, 4, -0.9)), (Beam(1, 9, -0.3),)),
    BeamStep((Beam(0, 5, -0.4),), ()),
    BeamStep((), (Beam(0, 9, -0.15),)),
]


def test_chains_are_one_node_and_the_result_is_chosen() -> None:
    first, second = beam_tree(STEPS, str, [1, 3, 5, 9])
    assert (first.label, first.value, first.chosen) == ("1", -0.1, True)
    assert [(one.label, one.value, one.chosen, one.why) for one in first.branches] == [
        ("3 5 9", -0.15, True, "finished"),
        ("4", -0.9, False, ""),
    ]
    assert (second.label, second.why, second.chosen, second.branches) == ("2 9", "finished", False, ())


def test_panels_of_each_kind_of_search() -> None:
    (tree,) = search_panels(Trace(beams=STEPS), str, [1, 3, 5, 9])
    assert tree["kind"] == "tree" and len(tree["roots"]) == 2
    stages = (Stage("model", (7, 8), (0.6, 0.3), 12), Stage("top k 1", (7,), (1.0,), 1))
    (table,) = search_panels(Trace(choices=[TokenChoice(stages, 7), TokenChoice(stages[:1], None)]), str, [7])
    assert table["columns"] == ["", "token", "model", "top k 1"]
    assert table["rows"][0] == [0, "7", "7 0.600  8 0.300  (12)", "7 1.000  (1)"]
    assert search_panels(Trace(), str, []) == []
