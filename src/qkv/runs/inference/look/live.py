"""The live page of `qkv look`: other texts, and the prediction with heads or layers switched off or scaled."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ....look.view.figure import Figure
from ....look.view.server import LiveServer
from ....nn.activations import Change, ScaleActivation, sites
from ..loaded import LoadedModel
from ..uses import reads_text
from .figure import look

MOST_CHARACTERS = 20_000  # of a text


class HeadChange(NamedTuple):
    """Scale the output of a head by a factor, 0 to switch it off; `head` None is the whole layer.

    part: "encoder", "decoder" or "cross"; "feedforward of encoder" … for a layer's feed-forward part.
    """

    part: str
    layer: int
    head: int | None
    factor: float


def changes_of(changes: Iterable[HeadChange]) -> dict[str, list[Change]]:
    """Return the changes of named activations (`qkv.nn.activations`) that scale heads and layers."""
    named: dict[str, list[Change]] = {}
    for part, layer, head, factor in changes:
        stack = part.removeprefix("feedforward of ")
        if stack != part:
            name, change = f"{stack}.layers.{layer}.feedforward", ScaleActivation(factor)
        else:
            name = f"decoder.layers.{layer}.cross" if part == "cross" else f"{part}.layers.{layer}.attention"
            name, change = (
                (name, ScaleActivation(factor))
                if head is None
                else (f"{name}.heads", ScaleActivation(factor, heads=[head]))
            )
        named.setdefault(name, []).append(change)
    return named


def changed_look(
    run: LoadedModel, inputs: str | Sequence[str], changes: Sequence[HeadChange], **options: Any
) -> Figure:
    """Return the figure of `look` with heads or layers changed; its facts say what they were without the changes.

    Raises ValueError for layers and heads that the model does not have.
    """
    _check(run, changes)
    changed = look(run, inputs, changes=changes_of(changes), **options)
    if not changes:
        return changed
    before = look(run, inputs, **options | {"neuron": None, "patch": None})
    views = (
        replace(
            one,
            facts=(*one.facts, *((f"{name}, unchanged", value) for name, value in other.facts)),
            notes=(*one.notes, _note(changes)),
        )
        for one, other in zip(changed.views, before.views, strict=True)
    )
    return replace(changed, views=tuple(views))


def _check(run: LoadedModel, changes: Sequence[HeadChange]) -> None:
    """Raise ValueError for a part or layer that the model does not have."""
    known = sites(run.model)
    for change in changes:
        (name,) = changes_of([change])
        if name in known:
            continue
        start, _, rest = name.partition(f".layers.{change.layer}.")
        layers = [
            int(one.split(".")[2]) for one in known if one.startswith(f"{start}.layers.") and one.endswith(f".{rest}")
        ]
        if not layers:
            raise ValueError(f"{run.name} has no {change.part} layers whose heads can be changed")
        raise ValueError(f"there is no {change.part} layer {change.layer}; the layers are {layers[0]} to {layers[-1]}")


def _note(changes: Sequence[HeadChange]) -> str:
    """What is changed, in words."""
    parts = []
    for part, layer, head, factor in changes:
        where = f"{part} layer {layer}" if head is None else f"{part} layer {layer} head {head}"
        parts.append(f"{where} × {factor:g}" if factor else f"{where} off")
    return f"Changed outputs: {', '.join(parts)}; weights are those that the changed model computes"


def live_server(
    run: LoadedModel, inputs: Sequence[str], port: int = 0, changes: Sequence[HeadChange] = (), **options: Any
) -> LiveServer:
    """Return a server of the live page, which begins with `inputs`, `changes` and the options of `look`; `serve_forever()`
    runs it. A word and a range of tokens refer to `inputs` alone."""
    first = changed_look(run, inputs, changes, **options)
    begin = {name: options.get(name) or "" for name in ("target", "neuron", "patch")}
    state = {**begin, "changes": [change._asdict() for change in changes]}

    def answer(request: dict[str, Any]) -> str:
        text = str(request.get("text", ""))
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"the text has {len(text):,} characters; give at most {MOST_CHARACTERS:,}")
        if not reads_text(run) and text not in inputs:
            raise ValueError("this model reads files; give them to `qkv look` on the command line")
        given = {name: str(request.get(name) or "").strip() or None for name in begin}
        own = options | {
            name: value for name, value in given.items() if name != "target" or run.model.is_encoder_decoder
        }
        own |= {} if text in inputs else {"word": None, "tokens": None}
        figure = changed_look(run, text, [_change(one) for one in _listed(request.get("changes"))], **own)
        return json.dumps(figure.page_data(), allow_nan=False)

    return LiveServer(lambda: first.html(live=state), answer, port)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("changes are a list")
    return value


def _change(value: Any) -> HeadChange:
    """A change from JSON. Raises ValueError for anything else."""
    if not isinstance(value, Mapping):
        raise ValueError("a change is an object with part, layer, head and factor")
    part, layer, head, factor = (value.get(name) for name in HeadChange._fields)
    numbers = isinstance(layer, int) and (head is None or isinstance(head, int)) and isinstance(factor, int | float)
    if not isinstance(part, str) or not numbers or not math.isfinite(factor):  # type: ignore[arg-type]
        raise ValueError("a change has a part, and finite numbers as layer, head (or null) and factor")
    return HeadChange(part, int(layer), head, float(factor))  # type: ignore[arg-type]
