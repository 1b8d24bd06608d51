"""Joint sequences: what a decoder read of a text and the files beside it, and its attention from words into each medium."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from ....core.layout import Layout
from ....generation.prompts import with_prompts
from ....look.view.attention import AttentionGroup, attention_groups
from ....look.view.axis import MOST_TOKENS, Axis
from ....look.view.labels import token_labels
from ....nn.kernels.request import Request
from ....nn.models.transformer import TransformerModel
from ...tasks.captioning.joint import See, question_of
from ...tasks.media import stacked
from ..loaded import LoadedModel
from ..reading.beside import prompts
from .media_spans import MediumSpan, spans_of

MOST_WRITTEN = 64  # tokens of an answer that is generated to be looked at


@dataclass(frozen=True, eq=False)
class JointPass:
    """A text with its media and the answer: ids of the whole sequence, its media, and a pass over it."""

    run: Callable[[], Tensor]
    ids: tuple[int, ...]
    output: str
    spans: tuple[MediumSpan, ...]


def joint_pass(run: LoadedModel, text: str) -> JointPass:
    """Read a text with the files beside it, or for questions about pictures FILE<tab>QUESTION, and write the answer.

    Raises ValueError if files and places differ in number, and for a file that can't be read.
    """
    asked = question_of(text) if isinstance(run.trained_on, See) else text
    (prompt,), found = prompts(run, [asked])
    settings = run.generation.replace(
        {"max_new_tokens": min(run.generation.max_new_tokens, MOST_WRITTEN), "num_beams": 1}
    )
    output = run.outputs_of([prompt], settings.replace({"num_samples": 1}), media=found if any(found) else ())[0][
        0
    ].text
    ids = (*prompt, *run.words.encode(output))
    model, media = cast(TransformerModel, run.model), stacked(found)
    read = torch.tensor([ids], device=model.device)
    layout = with_prompts(model, Layout.full(len(ids), device=model.device), [len(prompt)])
    spans = tuple(spans_of(run, asked, ids, found[0] if found else {}))
    return JointPass(lambda: model.hidden(read, layout=layout, media=media or None), ids, output, spans)


def media_groups(
    requests: Sequence[Request],
    made: JointPass,
    run: LoadedModel,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> tuple[list[AttentionGroup], dict[str, Axis]]:
    """The attention of words into each medium, and its axes: of the words after it, and of its places."""
    media = {i for span in made.spans for i in span.every}
    groups, axes = list[AttentionGroup](), dict[str, Axis]()
    for span in made.spans:
        after = [i for i in range(span.every[-1] + 1, len(made.ids)) if i not in media]
        shown = after[:MOST_TOKENS]
        if not shown:
            continue
        first = f"the first {len(shown)} of {len(after)} words are drawn" if len(shown) < len(after) else ""
        name, labels = f"words after the {span.name}", token_labels(run.words, [made.ids[i] for i in shown])
        words = Axis(name, tuple(labels), tuple(shown), len(shown))
        places = Axis(span.name, span.labels, span.places, len(span.places), grid=span.grid, picture=span.picture)
        axes |= {name: words, span.name: places}
        for group in attention_groups(requests, {"decoder": (words, places)}, layers, heads):
            note = "; ".join(filter(None, (span.note, first, group.note)))
            groups.append(replace(group, name=span.name, note=note))
    return groups, axes
