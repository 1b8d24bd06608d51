"""Generated match reports: a headline states the result of its report."""

from __future__ import annotations

import re

from qkv.data.synthetic.match_reports import Matches


def test_a_headline_is_the_reports_result() -> None:
    for e in Matches(train=200).examples("train"):
        teams = re.match(r"on \w+ (\w+) met (\w+) ", e["source"])
        goals = re.search(r"was (\d) to (\d) \.$", e["source"])
        assert teams and goals
        home, guest, ours, theirs = teams[1], teams[2], int(goals[1]), int(goals[2])
        if ours == theirs:
            assert e["target"] == f"{home} and {guest} drew {ours} all"
        else:
            order = (home, guest) if ours > theirs else (guest, home)
            assert e["target"] == f"{order[0]} beat {order[1]} {max(ours, theirs)} to {min(ours, theirs)}"
