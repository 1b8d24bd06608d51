"""Model specs as text and HTML: one line, or a tree in which equal blocks are folded."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Protocol

from ...core.spec import Spec, counted
from .block import Block
from .stack import Stack

Family = Callable[[Any], str | None]
families: list[Family] = []
"""Functions that name the published family that a spec belongs to; `qkv.io.families` adds its own."""

WIDTH = 90  # characters from which a part is shown as a branch and not on one line
FEW = 2  # differences by which a block is described beside another


class Summarized(Protocol):
    """What a summary reads of a model's spec."""

    kind: ClassVar[str]

    @property
    def d_model(self) -> int: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def n_parameters(self) -> int: ...
    def stacks(self) -> list[tuple[str, Any]]: ...


class Node(NamedTuple):
    """A line of the tree and the lines below it."""

    text: str
    below: list[Node]


def one_line(spec: Summarized) -> str:
    """A model in one line: `Transformer(gpt2-like: 12 × 768, 12 heads, 124 M)`."""
    family = next((name for function in families if (name := function(spec)) is not None), None)
    what = f"{family}-like" if family else "–".join(dict(spec.stacks())) or spec.kind
    return f"{type(spec).__name__}({what}: {sizes(spec)}, {rounded(spec.n_parameters)})"


def sizes(spec: Summarized) -> str:
    """Layers, width and heads of a model: `12 × 768, 12 heads`."""
    stacks = dict(spec.stacks())
    layers = " + ".join(f"{stack.n_layers}" for stack in stacks.values()) or f"{spec.n_layers}"
    return f"{layers} × {spec.d_model}{_heads(stacks)}"


def _heads(stacks: dict[str, Any]) -> str:
    """`, 12 heads` or `, 32 heads, 8 KV heads`; nothing if layers differ or have none."""
    counts = {
        (getattr(block.attention, "n_heads", None), getattr(block.attention, "n_kv_heads", None))
        for stack in stacks.values()
        for block in stack.blocks
    }
    heads, of_keys = counts.pop() if len(counts) == 1 else (None, None)
    if heads is None:
        return ""
    return f", {counted(heads, 'head')}" + (f", {counted(of_keys, 'KV head')}" if of_keys not in (None, heads) else "")


def rounded(n: int) -> str:
    """A number of parameters with three digits at most: `124 M`."""
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if n >= 0.9995 * size:
            return f"{n / size:.3g} {unit}"
    return str(n)


def tree(spec: Summarized) -> str:
    """The tree of a model's parts, equal blocks folded; fields at their defaults are left out."""
    return "\n".join(_drawn(_root(spec)))


def as_html(spec: Summarized) -> str:
    """The tree as HTML whose branches can be closed."""
    return f'<div style="font-family:monospace;line-height:1.5">{_as_html(_root(spec))}</div>'


def _root(spec: Any) -> Node:
    return Node(one_line(spec), [_scalars_node(spec), *_children(spec)] if _scalars(spec) else list(_children(spec)))


def _scalars_node(spec: Spec) -> Node:
    return Node(", ".join(f"{name}={value!r}" for name, value in _scalars(spec).items()), [])


def _scalars(spec: Spec) -> dict[str, Any]:
    """The fields that are no parts, if they differ from their defaults."""
    return {name: value for name, value in spec.changed_fields().items() if not _parts(value)}


def _parts(value: Any) -> tuple[Spec, ...]:
    if isinstance(value, Spec):
        return (value,)
    return value if isinstance(value, tuple) and value and all(isinstance(item, Spec) for item in value) else ()


def _children(spec: Spec) -> Iterator[Node]:
    """The parts of a model, a stack or a block; of anything else, only parts that differ from the defaults."""
    whole = isinstance(spec, Stack | Block) or spec.role == "model"
    for name in type(spec).model_fields if whole else spec.changed_fields():
        value = getattr(spec, name)
        if isinstance(value, Spec):
            if value.kind != "none":
                yield _node(f"{name}: ", value)
        elif parts := _parts(value):
            yield from _folded(name, parts)


def _folded(name: str, parts: tuple[Spec, ...]) -> Iterator[Node]:
    """A line for each distinct part. One that differs from the first in a number or two names only these."""
    first = parts[0]
    for part in dict.fromkeys(parts):
        places = [i for i, other in enumerate(parts) if other == part]
        label = f"{name} {_ranges(places)}: {len(places)} × " if len(places) > 1 else f"{name} {places[0]}: "
        differences = first.diff(part) if part.kind == first.kind else {}
        if 0 < len(differences) <= FEW and not any(path.endswith("kind") for path in differences):
            changes = ", ".join(f"{path}={theirs!r}" for path, (_, theirs) in differences.items())
            yield Node(f"{label}as {name} 0 with {changes}", [])
        else:
            yield _node(label, part)


def _node(label: str, spec: Spec) -> Node:
    short = repr(spec)
    below = list(_children(spec)) if len(short) > WIDTH else []
    if not below:
        return Node(label + short, [])
    scalars = ", ".join(f"{name}={value!r}" for name, value in _scalars(spec).items())
    return Node(f"{label}{type(spec).__name__}({scalars})", below)


def _ranges(numbers: list[int]) -> str:
    """0–3, 7"""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _drawn(node: Node, first: str = "", rest: str = "") -> Iterator[str]:
    yield first + node.text
    for i, child in enumerate(node.below):
        last = i == len(node.below) - 1
        yield from _drawn(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _as_html(node: Node) -> str:
    text = html.escape(node.text)
    if not node.below:
        return f'<div style="padding-left:1.1em">{text}</div>'
    below = "".join(map(_as_html, node.below))
    return f'<details open><summary>{text}</summary><div style="padding-left:1.1em">{below}</div></details>'
