"""ListOps (Nangia & Bowman 2018): nested operations on lists of digits, whose value is a digit.

    [MAX 2 9 [MIN 4 7 ] 0 ]  →  9

Long expressions are the first task of the Long Range Arena (Tay et al. 2021, §2.1): a model has to match brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ...core.spec import brief, nearest
from ..source import Example, Split
from .base import HashSplitSource, check_range, hashed_split

Tree = int | tuple[str, list[Any]]  # a digit, or an operation on trees

OPERATIONS: dict[str, Callable[[Sequence[int]], int]] = {
    "MIN": min,
    "MAX": max,
    "MED": lambda values: _median(sorted(values)),
    "SM": lambda values: sum(values) % 10,
    "FIRST": lambda values: values[0],
    "LAST": lambda values: values[-1],
}
_NESTED = 0.25  # probability that an argument is an operation rather than a digit
_TRIES = 100_000


def _median(values: Sequence[int]) -> int:
    """The median; of an even number of values, the mean of the two in the middle, rounded down."""
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) // 2


class ListOps(HashSplitSource, kind="listops"):
    """Expressions of `shortest` to `longest` tokens, nested at most `depth` deep, with 2 to `arguments` arguments each.

    `form`: "plain" as above; "binary" puts each step in parentheses, as in the files of Nangia & Bowman: ( ( ( [MAX 2 )
    9 ) ] ). Lengths are counted without these parentheses. Each epoch generates `train` new expressions; validation and
    test expressions never occur in training.
    """

    shortest: int = Field(default=4, ge=4)
    longest: int = Field(default=512, ge=4)
    depth: int = Field(default=10, ge=1)
    arguments: int = Field(default=10, ge=2)
    operations: tuple[str, ...] = ("MIN", "MAX", "MED", "SM")
    form: Literal["plain", "binary"] = "plain"
    train: int = Field(default=20_000, ge=1)
    validation: int = Field(default=500, ge=1)
    test: int = Field(default=500, ge=1)

    @field_validator("operations")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            raise ValueError(f"operations are some of {', '.join(OPERATIONS)}")
        for name in names:
            if name not in OPERATIONS:
                raise ValueError(f"there is no operation {brief(name)}; {nearest(name, OPERATIONS)}")
        return names

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_range(self.shortest, self.longest)
        most = self.arguments
        for _ in range(1, self.depth):
            if most + 2 >= self.shortest:  # enough; deeper expressions are longer, and the number grows exponentially
                break
            most = self.arguments * (most + 2)
        if self.shortest > most + 2:
            raise ValueError(
                f"no expression of depth {self.depth} with {self.arguments} arguments has {self.shortest} tokens; "
                f"lower shortest to {most + 2} or raise depth"
            )
        return self

    def draw(self, random: Random, split: Split) -> Example:
        """One expression of a split with its value. Raises ValueError if hardly any expression has the right length."""
        for _ in range(_TRIES):
            tree = self._tree(random, self.depth, self.longest)
            text = write(tree)
            if not self.shortest <= len(text.split()) <= self.longest:
                continue
            if hashed_split(text) == split:
                return {"source": text if self.form == "plain" else binary(tree), "target": str(value(tree))}
        raise ValueError(
            f"none of {_TRIES:,} expressions had {self.shortest} to {self.longest} tokens; widen this range, or change "
            "depth and arguments"
        )

    def _tree(self, random: Random, depth: int, room: int) -> Tree:
        """A random operation of about `room` tokens at most, so few expressions are too long."""
        arguments: list[Tree] = []
        left = room - 2
        for _ in range(random.randint(2, self.arguments)):
            nested = depth > 1 and left >= 4 and random.random() < _NESTED
            argument = self._tree(random, depth - 1, left) if nested else random.randrange(10)
            arguments.append(argument)
            left -= size(argument)
            if left < 1:
                break
        return random.choice(self.operations), arguments


def size(tree: Tree) -> int:
    """The number of tokens: one for a digit, two more than its arguments for an operation."""
    return 1 if isinstance(tree, int) else 2 + sum(map(size, tree[1]))


def value(tree: Tree) -> int:
    return tree if isinstance(tree, int) else OPERATIONS[tree[0]]([value(part) for part in tree[1]])


def write(tree: Tree) -> str:
    return str(tree) if isinstance(tree, int) else " ".join([f"[{tree[0]}", *map(write, tree[1]), "]"])


def binary(tree: Tree) -> str:
    """Write each step in parentheses: the operator with its first argument, that with the second, …, that with the end."""
    if isinstance(tree, int):
        return str(tree)
    text = f"[{tree[0]}"
    for part in (*map(binary, tree[1]), "]"):
        text = f"( {text} {part} )"
    return text


def read(text: str) -> Tree:
    """Parse an expression in either form. Raises ValueError if it is invalid."""
    stack: list[tuple[str, list[Any]]] = [("", [])]
    for token in text.replace("(", " ").replace(")", " ").split():
        if token.startswith("[") and token[1:] in OPERATIONS:
            stack.append((token[1:], []))
        elif token == "]" and len(stack) > 1 and stack[-1][1]:
            closed = stack.pop()
            stack[-1][1].append(closed)
        elif len(token) == 1 and token.isdigit():
            stack[-1][1].append(int(token))
        else:
            raise ValueError(f"{text[:60]!r} is not a ListOps expression: unexpected {brief(token)}")
    if len(stack) != 1 or len(stack[0][1]) != 1:
        raise ValueError(f"{text[:60]!r} is not one ListOps expression: a bracket is open, or there are several")
    tree: Tree = stack[0][1][0]
    return tree
