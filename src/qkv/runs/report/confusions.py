"""Report section on the mistakes of a classifier: its confusion matrix and the most frequent confusions."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from markupsafe import Markup

from ...core.spec import counted
from ...look.html import render
from .story import Section, Story

_MOST_CLASSES = 20  # of a matrix; a larger one would be illegible
_MOST_CONFUSIONS = 10


class MatrixCell(NamedTuple):
    """A cell of the matrix: `share` is the part of the true class's examples that got this prediction."""

    examples: int
    share: float
    right: bool


def confusions(story: Story) -> Section | None:
    """Drawn for runs whose `evaluation.json` has "confusions". Raises ValueError if they are malformed."""
    try:
        pairs = Counter({(str(t), str(o)): int(n) for t, o, n in story.evaluation.get("confusions") or ()})
    except (TypeError, ValueError):
        raise ValueError(
            f'"confusions" in the evaluation of {story.run_dir} are not a list of true class, predicted class and number'
        ) from None
    if not pairs:
        return None
    totals: Counter[str] = Counter()
    for (truth, _), count in pairs.items():
        totals[truth] += count
    wrong = [(truth, output, count) for (truth, output), count in pairs.most_common() if truth != output]
    names = sorted({name for pair in pairs for name in pair})
    matrix = [
        (truth, [MatrixCell(n := pairs[truth, output], n / max(totals[truth], 1), truth == output) for output in names])
        for truth in names
    ]
    listed = [
        (truth, output, f"{count:,}", f"{count / totals[truth]:.0%} of {truth}")
        for truth, output, count in wrong[:_MOST_CONFUSIONS]
    ]
    body = render("confusions.html", names=names, matrix=matrix if len(names) <= _MOST_CLASSES else [], listed=listed)
    mistakes = sum(count for _, _, count in wrong)
    note = f"{mistakes:,} of {counted(pairs.total(), 'prediction')} {'is' if mistakes == 1 else 'are'} wrong."
    return Section("Confusions", Markup(body), note)
