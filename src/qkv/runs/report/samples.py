"""Report sections on single outputs: samples beside the truth, conversations, and the best and the worst examples."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from markupsafe import Markup

from ...core.metrics.display import display_of
from ...look import pictures
from ...look.formatting import shown
from ...look.html import render
from ...look.output_diff import marked
from ...look.svg import join, readable, tag
from .story import Section, Story

_SHOWN = 6  # samples on the page
_LONG = 600  # characters of a text from which on its end is folded
_BEGINNING = 400  # characters that are then shown
_MOST = 10_000  # characters of a text on the page


def samples(story: Story) -> Section | None:
    """Outputs beside the truth, marked right or wrong; in a wrong one, what the truth does not have is underlined. Numbers
    and replies to conversations are neither."""
    chosen = story.samples[:_SHOWN]
    if not chosen:
        return None
    classes = _classes(story)
    views = [_view(sample, classes) for sample in chosen]
    judged = [view["right"] for view in views if view["right"] is not None]
    note = f"{sum(judged)} of these {len(judged)} equal the truth." if judged else ""
    if all("messages" in sample for sample in chosen):
        split = story.evaluation.get("split")
        note = f"The {f'{split} split' if split else 'held-out data'}: the model's last turn beside the reference."
        return Section("Conversations", Markup(render("samples.html", samples=views)), note)
    return Section("Samples", Markup(render("samples.html", samples=views)), note)


def best_and_worst(story: Story) -> Section | None:
    """The examples with the best and the worst scores."""
    extremes = story.extremes
    if not extremes:
        return None
    by = str(extremes.get("by", "score"))
    score = f"Score: {display_of(by).title}; {story.evaluated_on}."
    extreme = [sample.get("score") for key in ("best", "worst") for sample in extremes[key][:1]]
    if len(extreme) == 2 and extreme[0] == extreme[1] and isinstance(extreme[0], float):
        same = f"{score} All examples have the same score, {shown(by, extreme[0])}."
        return Section("Best and worst examples", Markup(""), same)
    parts: list[Markup] = []
    for title, key in (("Best", "best"), ("Worst", "worst")):
        views = [_view(sample, _classes(story), by) for sample in extremes[key]]
        if views:
            parts += [tag("h3", title, class_="label"), Markup(render("samples.html", samples=views))]
    return Section("Best and worst examples", join(*parts), score) if parts else None


def is_right(sample: Mapping[str, Any]) -> bool:
    """Whether output and truth are the same but for space around them, as `exact_match` counts."""
    target = sample.get("target")
    return target is not None and str(sample["output"]).strip() == str(target).strip()


def _classes(story: Story) -> set[str]:
    """The classes that were predicted. Letters that two of them share mean nothing."""
    return {str(output) for _, output, _ in story.evaluation.get("confusions") or ()}


def _view(sample: Mapping[str, Any], classes: Collection[str], by: str = "") -> dict[str, Any]:
    """What the page shows of a sample. `by` is the name of its score."""
    output, target = str(sample["output"]), sample.get("target")
    right = is_right(sample) if target is not None and not sample.get("graded") else None
    score = sample.get("score")
    return {
        "source": _folded(str(sample.get("source", ""))),
        "messages": [
            {"role": str(message.get("role", "")), "content": _folded(str(message.get("content", "")))}
            for message in sample.get("messages", ())
        ],
        "output": (
            tag("mark", output)
            if right is False and output in classes
            else _folded(output, None if right is not False else str(target))
        ),
        "target": None if target is None else _folded(str(target)),
        "right": right,
        "picture": pictures.draw(sample["picture"]) if sample.get("picture") else None,
        "score": None if not isinstance(score, float) else shown(by, score) if by else readable(score),
    }


def _folded(text: str, target: str | None = None) -> Markup:
    """A text, of which a long one shows its beginning and unfolds. With a `target`, differences from it are marked."""
    if len(text) <= _LONG:
        return _with_marks(text, target)
    words = text[:_BEGINNING].rsplit(maxsplit=1)  # none if a model wrote only spaces
    beginning = (words[0] if words else text[:_BEGINNING]) + " …"
    whole = text if len(text) <= _MOST else text[:_MOST] + "…"
    count = f"all {len(text):,}" if len(text) <= _MOST else f"the first {_MOST:,} of {len(text):,}"
    return join(
        _with_marks(beginning, target),
        tag("details", tag("summary", f"Show {count} characters"), tag("div", whole), class_="rest"),
    )


def _with_marks(text: str, target: str | None) -> Markup:
    return Markup.escape(text) if target is None else marked(text, target[:_MOST])
