"""Panels of a recorded search: the tree of a beam search, or the distribution of every token after each processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....generation.trace import BeamStep, Stage, TokenChoice, Trace
from ....look.view.panels import Branch, Panel, table_panel, tree_panel

Label = Callable[[int], str]

ENDINGS = {
    "eos": "the end-of-sequence token",
    "stop": "a stop string",
    "length": "the limit on new tokens",
    "stuck": "no token was allowed",
}
"""Why an output ends, by `Generated.reasons`."""


def search_panels(search: Trace, label: Label, best: Sequence[int]) -> list[Panel]:
    """Return the panels of a search; `label` names a token, and `best` are the new tokens of its result."""
    if search.beams:
        note = (
            "Tokens with the sum of their log-probabilities; a finished beam has its final score, that sum divided by its "
            "length to the power of length_penalty. Bold: the result. Beams without branches were dropped for better ones."
        )
        return [tree_panel("Beam search", beam_tree(search.beams, label, best), note)]
    return [_choices(search.choices, label)] if search.choices else []


@dataclass
class _Node:
    path: tuple[int, ...]
    score: float
    ends: float | None = None
    below: list[_Node] = field(default_factory=list)


def beam_tree(steps: Sequence[BeamStep], label: Label, best: Sequence[int]) -> list[Branch]:
    """Return the tree of a beam search; tokens that only one beam continues are one node."""
    root = _Node((), 0.0)
    running = [root]
    for step in steps:
        ended = [(running[beam.parent], beam) for beam in step.finished]
        going = [(running[beam.parent], beam) for beam in step.running]
        for parent, beam in ended:
            parent.below.append(_Node((*parent.path, beam.token), beam.score, ends=beam.score))
        running = []
        for parent, beam in going:
            node = _Node((*parent.path, beam.token), beam.score)
            parent.below.append(node)
            running.append(node)
    return [_branch(node, label, tuple(best)) for node in root.below]


def _branch(node: _Node, label: Label, best: tuple[int, ...]) -> Branch:
    """A node with all that follow it, as long as each has one successor, and the branches below."""
    start = len(node.path) - 1
    while len(node.below) == 1 and node.ends is None:
        node = node.below[0]
    chosen = best[: len(node.path)] == node.path
    words = " ".join(label(token) for token in node.path[start:])
    why = "" if node.ends is None else "finished"
    branches = tuple(_branch(one, label, best) for one in node.below)
    return Branch(words, node.score, chosen, why, branches)


def _choices(choices: Sequence[TokenChoice], label: Label) -> Panel:
    """A row for every token: what was chosen, and the likeliest tokens of each stage."""
    stages = max((choice.stages for choice in choices), key=len)
    rows: list[list[str | float]] = [
        [i, "none" if choice.token is None else label(choice.token), *(_shown(stage, label) for stage in choice.stages)]
        for i, choice in enumerate(choices)
    ]
    return table_panel(
        "How tokens were chosen",
        columns=["", "token", *(stage.name for stage in stages)],
        rows=rows,
        note="The likeliest tokens with their probabilities, of the model and after each processor, and how many tokens "
        "remain possible.",
    )


def _shown(stage: Stage, label: Label) -> str:
    best = "  ".join(f"{label(i)} {p:.3f}" for i, p in zip(stage.tokens, stage.probabilities, strict=True))
    return f"{best}  ({stage.possible:,})"
