"""Generated proteins: runs of states with the residues that they favor."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise

from qkv.data.synthetic.proteins import Folds


def test_a_label_for_each_residue_in_runs_of_their_lengths() -> None:
    for example in Folds(train=100).examples("train"):
        assert len(example["text"]) == len(example["tags"]) and 40 <= len(example["tags"]) <= 120
        runs = [(state, len([*run])) for state, run in groupby(example["tags"])]
        for state, length in runs[1:-1]:  # the last one is cut
            assert {"H": 8, "E": 4, "C": 3}[state] <= length <= {"H": 20, "E": 9, "C": 12}[state]
        assert all("C" in (a, b) for (a, _), (b, _) in pairwise(runs))


def test_states_favor_residues() -> None:
    counts = {state: Counter[str]() for state in "HEC"}
    for example in Folds(train=200, favor=0.8).examples("train"):
        for residue, state in zip(example["text"], example["tags"], strict=True):
            counts[state][residue] += 1
    for state, favored in {"H": "AELMQKRH", "E": "VIYFWTLC", "C": "GNPSDTKE"}.items():
        assert sum(counts[state][residue] for residue in favored) > 0.8 * counts[state].total()
