"""Hostile recipes: the packaged ones, with values and shapes that they should not have.

`mutants(seed, n)` gives them, `check` says what is wrong with how one is met: None, or a sentence. A recipe is to be read,
with its model's spec, or to end in a ValueError of one sentence that names a key which was changed.
"""

from __future__ import annotations

import copy
import math
import random
import re
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qkv.core import yamls
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import BESIDE, Recipe, tree

SECONDS = 5.0  # for one recipe; a healthy one takes milliseconds
_OF_A_SPEC = re.compile(r"[A-Z]\w+: |preset '")
LONGEST = 2000  # characters of a message
NAMES = sorted(name for name in packaged() if not set(BESIDE) & tree(name).keys())
NUMBERS = (float("nan"), float("inf"), float("-inf"), -1, 0, 0.5, 1.5, -1e-30, 1e300, 10**9, 10**30, -(10**30))
OTHERS = (
    None,
    True,
    "",
    "x",
    "x" * 100_000,
    [],
    {},
    [1, 2],
    {"kind": "no-such"},
    {"kind": None},
    {"kind": ["a"]},
    [[[]]],
)


@dataclass(frozen=True)
class Mutant:
    """A recipe's tree, and the dotted path of what was changed in it."""

    name: str
    path: tuple[str, ...]
    tree: dict[str, Any]
    value: Any

    def __str__(self) -> str:
        return f"{self.name}, {'.'.join(self.path)}"


def mutants(seed: int, n: int) -> Iterator[Mutant]:
    """So many recipes, each with one leaf or branch that is something else."""
    draw = random.Random(seed)
    for _ in range(n):
        name = draw.choice(NAMES)
        whole = copy.deepcopy(tree(name))
        path = draw.choice(list(_places(whole)))
        node = whole
        for part in path[:-1]:
            node = node[part]
        numeric = isinstance(node[path[-1]], int | float) and draw.random() < 0.8
        chosen = draw.choice(NUMBERS if numeric else (*NUMBERS, *OTHERS, _deep(draw.choice((50, 5000))), _wide(20_000)))
        node[path[-1]] = chosen
        yield Mutant(name, path, whole, chosen)


def bombs() -> Iterator[tuple[str, str]]:
    """What a text of YAML can be, by name; none of them is a recipe."""
    grown = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))
    yield "aliases", f"a0: &a0 [x]\n{grown}\n"
    yield "merged keys", "a: &a {x: 1}\nb: {<<: *a}\n"
    yield "itself", "a: &a [*a]\n"
    yield "deep lists", "name: " + "[" * 100_000 + "]" * 100_000
    yield "deep mappings", "name: " + "{a: " * 20_000 + "1" + "}" * 20_000
    yield "many keys", "".join(f"key{i}: {i}\n" for i in range(20_000))
    yield "many keys in a part", "training:\n" + "".join(f"  key{i}: {i}\n" for i in range(20_000))
    yield "many unknown sizes", "model: {preset: gpt, " + ", ".join(f"key{i}: {i}" for i in range(20_000)) + "}\n"
    yield "a tag", "name: !!python/object/apply:os.system [true]\n"
    yield "a long number", "seed: " + "9" * 100_000 + "\n"
    yield "control characters", "name: \x00\n"
    yield "two documents", "name: a\n---\nname: b\n"


def check(mutant: Mutant) -> str | None:
    """What is wrong with how a mutant is met; None if nothing is."""
    parts = tuple(part for name in mutant.path for part in name.split("."))
    parts += ("preset",) if mutant.path == ("model",) else ()  # a bare kind is a preset's name
    endless = isinstance(mutant.value, float) and not math.isfinite(mutant.value)
    return _judge(str(mutant), lambda: _read(mutant.tree), parts, endless)


def check_text(name: str, text: str) -> str | None:
    """The same of a text that is no recipe."""
    return _judge(name, lambda: Recipe.from_tree(yamls.load(text, "x.yaml")), (), refused=True)


def _read(data: dict[str, Any]) -> None:
    recipe = Recipe.from_tree(data)
    recipe.model.spec(recipe.vocab_size)


def _judge(name: str, act: Any, path: tuple[str, ...], refused: bool = False) -> str | None:
    """`refused`: whether it must not be accepted."""
    began = time.monotonic()
    try:
        act()
        if refused:
            return f"{name}: accepted"
    except ValueError as error:
        said = str(error)
        if len(said) > LONGEST:
            return f"{name}: a message of {len(said):,} characters"
        # what a size makes of the model is told by its place there
        of_the_model = path[:1] in (("model",), ("tokenizer",)) and _OF_A_SPEC.match(said)
        if path and not of_the_model and not any(part in said for part in path):
            return f"{name}: {said!r} names no key"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{name}: {type(error).__name__}: {str(error)[:200]} ({where.filename}:{where.lineno})"
    spent = time.monotonic() - began
    return f"{name}: {spent:.1f} s" if spent > SECONDS else None


def _places(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _places(value, (*path, key))


def _deep(depth: int) -> Any:
    value: Any = 1
    for i in range(depth):
        value = {"kind": value} if i % 2 else [value]
    return value


def _wide(n: int) -> dict[str, int]:
    return {f"key{i}": i for i in range(n)}
