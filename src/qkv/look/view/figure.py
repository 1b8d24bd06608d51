"""`Figure`: attention of one or several inputs, displayed by notebooks and saved as a page, a picture or exact numbers."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from jaxtyping import Float
from markupsafe import Markup
from torch import Tensor, nn

from ...core.atomic import write_file
from ...core.spec import brief
from ..html import PAGE, render
from . import picture, word_picture
from .attention import AttentionGroup
from .axis import Axis
from .encode import Arrays, group_json
from .panels import Panel
from .score import ScoreBreakdown, score_breakdown

ROOM = 2_700_000  # characters of arrays in a page, so it has less than 3 MB


@dataclass(frozen=True, eq=False)
class InputView:
    """What is shown of one input.

    text:   the input: a text or the path of a file.
    axes:   by name.
    groups: of attention, see `AttentionGroup`.
    facts:  (name, value): the prediction, the output …
    notes:  sentences on what is not shown, and why.
    focus:  by axis, the indices of the tokens whose dependencies are drawn alone at first.
    panels: further sections.
    """

    text: str
    axes: dict[str, Axis]
    groups: tuple[AttentionGroup, ...]
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    focus: dict[str, list[int]] = field(default_factory=dict)
    panels: tuple[Panel, ...] = ()

    def group(self, name: str | None = None) -> AttentionGroup:
        """Return a group by its name, by default the first. Raises ValueError if there is none."""
        if not self.groups:
            raise ValueError("there is no attention in this figure; its notes say why")
        for group in self.groups:
            if name in (None, group.name):
                return group
        raise ValueError(
            f"there is no attention {brief(name)}; this figure has {', '.join(g.name for g in self.groups)}"
        )

    def token(self, axis: str, index: int) -> str:
        """Return the label of a token, or its number if it is not on display."""
        shown = dict(zip(self.axes[axis].shown, self.axes[axis].labels, strict=True))
        return shown.get(index, f"#{index}")


@dataclass(frozen=True, eq=False)
class Figure:
    """Attention of a trained model on some inputs; a notebook displays the page that `save("page.html")` writes.

    title: of the page. views: one for each input. model: for the output projections of `score`. head: (layer, head) that the
    page opens with. kind: of attention that the page opens with and a picture shows, "encoder", "decoder" or "cross".
    """

    title: str
    views: tuple[InputView, ...]
    model: nn.Module | None = None
    head: tuple[int, int] | None = None
    kind: str | None = None

    def __repr__(self) -> str:
        """One line: where it is from, and the attention of each input."""
        shown = "; ".join(f"{view.text[:40]!r}: {', '.join(g.name for g in view.groups)}" for view in self.views)
        return f"Figure({self.title}, {shown})"

    def weights(self, layer: int, head: int, group: str | None = None, view: int = 0) -> Float[Tensor, "T S"]:
        """Return the exact weights of a head on display: rows are queries. Raises ValueError if it is not on display."""
        return self.views[view].group(group).head(layer, head)

    def score(
        self, layer: int, head: int, query: int, key: int, group: str | None = None, view: int = 0
    ) -> ScoreBreakdown:
        """Return one score in steps. Indices are token indices in the whole sequence, from 0."""
        shown = self.views[view]
        chosen = shown.group(group)
        tokens = shown.token(chosen.query, query), shown.token(chosen.key, key)
        return score_breakdown(chosen.layer(layer), head, query, key, tokens, self.model)

    def save(
        self, path: str | Path, group: str | None = None, layer: int | None = None, head: int | None = None
    ) -> Path:
        """Write the figure: `.html` is the interactive page, `.json` has exact weights, `.svg`, `.png` and
        `.pdf` are a picture.

        A picture has a heat map of `layer` (by default the last on display), of one `head` or averaged over heads, and
        small maps of the others. If the figure is of a word, it has what the word attends to in each head instead. Raises
        ValueError for another suffix.
        """
        path = check_suffix(path)
        if path.suffix == ".html":
            content = self.html().encode()
        elif path.suffix == ".json":
            content = json.dumps(self.to_json(), ensure_ascii=False).encode()
        else:
            drawing = self.drawing(group, layer, head)
            content = {".svg": lambda: drawing.svg().encode(), ".png": drawing.png, ".pdf": drawing.pdf}[path.suffix]()
        write_file(path, content)
        return path

    def drawing(
        self, group: str | None = None, layer: int | None = None, head: int | None = None, view: int = 0
    ) -> picture.Drawing:
        """Return the picture that `save` writes."""
        shown = self.views[view]
        chosen = shown.group(group or self.kind)
        if shown.focus.keys() & {chosen.query, chosen.key}:
            return word_picture.draw(chosen, shown.axes, shown.focus, layer, head, shown.text)
        return picture.draw(chosen, shown.axes, layer, head, shown.text)

    def html(self, live: Mapping[str, Any] | None = None) -> str:
        """Return the page: one file without requests. With `live`, what its form begins with (`target`, `neuron`, `patch`,
        `changes`), it asks the server that it came from for other texts."""
        script = (PAGE / "look.js").read_text(encoding="utf-8")
        digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
        return render(
            "look.html",
            title=self.title,
            script=Markup(script),
            digest=digest,
            live=None if live is None else json.dumps(dict(live)),
            look=Markup((PAGE / "look.css").read_text(encoding="utf-8")),
            data=Markup(as_script(self.page_data())),
        )

    def _repr_html_(self) -> str:
        """The page in its own frame, so its style stays apart from the notebook's."""
        return (
            f'<iframe srcdoc="{escape(self.html())}" style="width:100%;height:900px;border:0" '
            f'title="{escape(self.title)}"></iframe>'
        )

    def page_data(self) -> dict[str, Any]:
        """Return what the page draws: weights in 8 bits, and vectors in 16 if there is room."""
        arrays = Arrays()
        each = ROOM // len(self.views)
        views = [_view_json(view, self.model, arrays, each * i) for i, view in enumerate(self.views, 1)]
        head = None if self.head is None else list(self.head)
        return {"title": self.title, "head": head, "kind": self.kind, "views": views, "arrays": arrays.texts}

    def to_json(self) -> dict[str, Any]:
        """Return everything on display with exact weights."""
        return {
            "title": self.title,
            "views": [
                {
                    "text": view.text,
                    "facts": [list(fact) for fact in view.facts],
                    "notes": list(view.notes),
                    "axes": {name: axis.to_json() for name, axis in view.axes.items()},
                    "attention": [_exact(group) for group in view.groups],
                    "panels": list(view.panels),
                }
                for view in self.views
            ],
        }


def check_suffix(path: str | Path) -> Path:
    """Return a path that a figure can be saved to. Raises ValueError for another suffix."""
    path = Path(path)
    if path.suffix not in (".html", ".json", ".svg", ".png", ".pdf"):
        raise ValueError(
            f"a figure is saved as .html, .json, .svg, .png or .pdf, not {brief(path.suffix or path.name)}"
        )
    return path


def _view_json(view: InputView, model: nn.Module | None, arrays: Arrays, room: int) -> dict[str, Any]:
    axes = {}
    for name, axis in view.axes.items():
        image = None if axis.picture is None else "data:image/png;base64," + b64encode(axis.picture).decode()
        axes[name] = axis.to_json() | {"picture": image}
    return {
        "text": view.text,
        "axes": axes,
        "groups": [group_json(group, view.axes, model, arrays, room) for group in view.groups],
        "facts": [list(fact) for fact in view.facts],
        "notes": list(view.notes),
        "focus": view.focus,
        "panels": list(view.panels),
    }


def _exact(group: AttentionGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "queries": group.query,
        "keys": group.key,
        "layers": [
            {
                "index": layer.index,
                "name": layer.name,
                "heads": list(layer.heads),
                "weights": layer.weights.tolist(),
                "computed": None if layer.computed is None else layer.computed.tolist(),
            }
            for layer in group.layers
        ],
    }


def as_script(value: object) -> str:
    """Return JSON that is safe inside a script element: no `<`, `>` or `&`, nor JavaScript's line ends."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
