"""Simple methods beside the scores of a trained model, on the same examples, and what to try if they are better."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from ...core.metrics.baselines import Baseline
from ...core.metrics.display import display_of
from ...data.source import Example, Skipped, Split
from ..recipes.recipe import Recipe
from .example_counts import first

BEST = {"fraction": 1.0, "correlation": 1.0, "points": 100.0}  # that a metric of each scale can be


def baselines_of(
    recipe: Recipe, split: Split, limit: int | None, confusions: Sequence[tuple[str, str, int]]
) -> list[Baseline]:
    """The baselines of the recipe's task on the first `limit` examples of a split, with the most frequent class if an
    evaluation has `confusions` of classes. Raises ValueError if the examples can't be read."""
    if recipe.task is None:
        return []
    classes: tuple[str, ...] = getattr(recipe.task, "classes", ())
    found = []
    if classes and confusions:
        from ..tasks.text_classification.metric import most_frequent  # imported here: other tasks do without

        found = [most_frequent(confusions)]
    return [*found, *recipe.task.baselines(recipe.data, _examples(recipe, split, limit))]


def _examples(recipe: Recipe, split: Split, limit: int | None) -> Iterator[Example]:
    """The examples that were evaluated, read when they are needed."""
    entries, _ = first(recipe.data.table(split, seed=recipe.seed), limit or sys.maxsize)
    yield from (entry for entry in entries if not isinstance(entry, Skipped))


def advice(recipe: Recipe, baselines: Sequence[Baseline], metrics: Mapping[str, float], cut: bool) -> Iterator[str]:
    """A sentence on the best baseline by the metric of the recipe, if the model's `metrics` are not better, and on what to
    try; `cut` says whether texts were truncated."""
    metric = recipe.training.metric
    scored = [one for one in baselines if metric in one.metrics]
    if not scored or metric not in metrics or not display_of(metric).higher_is_better:
        return
    best, value = max(scored, key=lambda one: one.metrics[metric]), metrics[metric]
    if value > best.metrics[metric] or value >= BEST.get(display_of(metric).scale, float("inf")):
        return
    tries = [] if recipe.model.directory else ["a pretrained model (model=DIRECTORY)"]
    tries.append("more steps (training.max_steps)")
    longest = getattr(recipe.task, "longest", None)
    tries += [f"longer texts (task.longest, now {longest})"] if longest and cut else []
    title, other = display_of(metric).title, " or ".join(filter(None, (", ".join(tries[:-1]), tries[-1])))
    name = title if title[:2].isupper() else title.lower()  # BLEU and PSNR are written so
    yield f"{best.name} has {best.metrics[metric]:.4g} in {name} on these examples, and the model {value:.4g}; try {other}"
