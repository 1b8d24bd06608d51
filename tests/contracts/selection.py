"""Which combinations run: part of a pairwise selection in the fast suite, the whole product in `make test-all`.

The pairwise selection of a contract holds every pair of values. The fast suite takes each `SHARE`-th of its combinations,
and those that hold a value which the others lack. Where it starts depends on the contract's name: contracts over the same
axes take different parts, so together they still meet most pairs. The sample is the same in every run. All pairs, and
the product beyond them, are marked slow.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from axes import Example

Impossible = Callable[["Combination"], str | None]

# The fast suite runs one in so many of the combinations that hold every pair, unless a contract says otherwise.
SHARE = 8


class Combination:
    """One value of every axis, as attributes; printed as the labels."""

    def __init__(self, **examples: Example) -> None:
        self.labels = {axis: example.label for axis, example in examples.items()}
        self.__dict__.update({axis: example.value for axis, example in examples.items()})

    def __str__(self) -> str:
        return "-".join(self.labels.values())


class Contract:
    """The axes of one contract, what makes no sense, and how much of it the fast suite takes.

    turned: axes that the whole product takes in turn instead of multiplying by them.
    fast:   2 takes a share of what holds every pair of values, 1 every value, 0 a share of those: for what is dear.
    share:  the fast suite takes one in so many.
    whole:  how much the full suite takes: 0 is the product, 2 every pair, 1 every value.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[Example]],
        impossible: Impossible | None = None,
        turned: Sequence[str] = (),
        fast: int = 2,
        whole: int = 0,
        share: int = SHARE,
    ) -> None:
        self.axes, self.turned, self.fast, self.whole, self.share = dict(axes), turned, fast, whole, share
        self.impossible: Impossible = impossible or (lambda _: None)

    def parameters(self, slow: bool, name: str = "") -> Iterator[Any]:
        """What `pytest.mark.parametrize` is given: combinations, and one skip for each reason that some make no sense.

        `name` is the contract's; it says which share of the pairs is the fast suite's.
        """
        selected = select(self.axes, self.impossible, max(self.fast, 1))
        chosen = selected if self.fast == 1 else sample(selected, name, self.share, every_value=self.fast > 1)
        for combination in chosen:
            yield pytest.param(combination, id=str(combination))
        if slow:
            seen = {str(combination) for combination in chosen}
            more = self._product() if self.whole == 0 else select(self.axes, self.impossible, self.whole)
            for combination in (*selected, *more):
                if str(combination) not in seen:
                    seen.add(str(combination))
                    yield pytest.param(combination, id=str(combination), marks=pytest.mark.slow)
        for i, (reason, count) in enumerate(self.refused().items()):
            skip = pytest.mark.skip(reason=f"{count} combinations: {reason}")
            yield pytest.param(None, id=f"senseless{i}", marks=skip)

    def refused(self) -> Counter[str]:
        """How many combinations of all axes make no sense, for each reason.

        A rule reads few axes: values of the others are counted, not tried.
        """
        reasons: Counter[str] = Counter()

        def count(fixed: Mapping[str, Example]) -> None:
            try:
                reason = self.impossible(Combination(**fixed))
            except AttributeError as error:
                if error.name not in self.axes or error.name in fixed:
                    raise
                for value in self.axes[error.name]:
                    count({**fixed, error.name: value})
                return
            if reason is not None:
                reasons[reason] += math.prod(len(values) for axis, values in self.axes.items() if axis not in fixed)

        count({})
        return reasons

    def _main(self) -> dict[str, Sequence[Example]]:
        return {axis: values for axis, values in self.axes.items() if axis not in self.turned}

    def _all(self) -> Iterator[Combination]:
        main = self._main()
        for number, values in enumerate(product(*main.values())):
            turned = {axis: self.axes[axis][number % len(self.axes[axis])] for axis in self.turned}
            yield Combination(**dict(zip(main, values, strict=True)), **turned)

    def _product(self) -> Iterator[Combination]:
        return (combination for combination in self._all() if self.impossible(combination) is None)


def sample(
    combinations: Sequence[Combination], name: str, share: int = SHARE, every_value: bool = True
) -> list[Combination]:
    """One in `share` of the combinations, from a place given by the name, and those that hold a value not met yet."""
    taken = set(range(zlib.crc32(name.encode()) % share, len(combinations), share))
    met = {value for number in taken for value in combinations[number].labels.items()}
    for number, combination in enumerate(combinations if every_value else ()):
        if not met.issuperset(combination.labels.items()):
            met.update(combination.labels.items())
            taken.add(number)
    return [combinations[number] for number in sorted(taken)]


Pick = tuple[int, ...]
Part = tuple[tuple[int, int], ...]  # (axis number, value number), …


def select(axes: Mapping[str, Sequence[Example]], impossible: Impossible, strength: int = 2) -> list[Combination]:
    """Few combinations that hold every possible `strength`-tuple of values; always the same ones.

    Greedy: each starts from the first tuple that is still uncovered, and every other axis takes the value that covers
    most of what is left, going back where what comes out makes no sense.
    """
    names, values = list(axes), list(axes.values())
    left: dict[Part, None] = {
        tuple(zip(places, numbers, strict=True)): None
        for places in combinations(range(len(names)), min(strength, len(names)))
        for numbers in product(*(range(len(values[place])) for place in places))
    }
    usage: Counter[tuple[int, int]] = Counter()
    chosen: list[Combination] = []

    def build(fixed: Mapping[int, int]) -> Combination:
        return Combination(**{names[place]: values[place][number] for place, number in fixed.items()})

    def possible(fixed: Mapping[int, int]) -> bool:
        """Whether some values may make sense, whatever the others are: unknown if the rule asks for another."""
        try:
            return impossible(build(fixed)) is None
        except AttributeError:
            if len(fixed) == len(names):
                raise
            return True

    while left:
        start = next(iter(left))
        pick = _completed(dict(start), [len(v) for v in values], left, usage, possible)
        del left[start]
        if pick is None:  # nothing that holds this tuple makes sense
            continue
        chosen.append(build(dict(enumerate(pick))))
        for places in combinations(range(len(names)), min(strength, len(names))):
            left.pop(tuple((place, pick[place]) for place in places), None)
        usage.update(enumerate(pick))
    return chosen


def _completed(
    fixed: dict[int, int],
    sizes: list[int],
    left: Mapping[Part, None],
    usage: Counter[tuple[int, int]],
    possible: Callable[[Mapping[int, int]], bool],
) -> Pick | None:
    """The fixed values with one for each other axis, the most useful first; None when none is possible."""
    if not possible(fixed):
        return None
    free = [place for place in range(len(sizes)) if place not in fixed]
    if not free:
        return tuple(fixed[place] for place in range(len(sizes)))
    place = free[0]

    def gain(number: int) -> tuple[int, int]:
        mine = (place, number)
        found = sum(tuple(sorted((mine, other))) in left for other in fixed.items())
        return -found, usage[mine]

    for number in sorted(range(sizes[place]), key=gain):
        pick = _completed({**fixed, place: number}, sizes, left, usage, possible)
        if pick is not None:
            return pick
    return None
