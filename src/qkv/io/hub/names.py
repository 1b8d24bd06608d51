"""Two-way tables of tensor names: what another library calls a tensor, what we call it, and how one becomes the other.

A table is a tuple of `Row`s. Our names in it are the names in a model's `state_dict`. A table may have rows for parts that a
model lacks, and several rows for one part. The first of them is used for writing, and any of them for reading. If several
rows have the same name, the shape of the tensor decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor, nn

from ...core.spec import brief, nearest
from .transforms import SAME, Shape, TensorTransform


@dataclass(frozen=True)
class Row:
    """Their names, our names, and the transform between: `Row("h.{i}.mlp.c_fc.*", "decoder.blocks.{i}.feedforward.up.*")`.

    `{i}` is a number (`{e}`, in theirs alone, numbers the slices of our tensor), `*` is any ending, and `[q,k,v]` stands for
    several names. An empty name on our side marks a tensor that is ignored: a mask, a table that is computed. `copied` marks
    a further name that others write too and don't compute with, and `zero` a tensor that is 0 in files that lack it.
    """

    theirs: str
    ours: str
    how: TensorTransform = SAME
    copied: bool = False
    zero: bool = False

    def renamed(self, old: str, new: str) -> Row:
        """The row with `old` replaced by `new` in their names."""
        return replace(self, theirs=self.theirs.replace(old, new))

    def names(self, name: str) -> bool:
        """Whether a name of theirs is one of the row's, wherever it stands."""
        return any(_regex(pattern).fullmatch(name) is not None for pattern in _alternatives(self.theirs))

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        return _alternatives(self.ours)

    def match(self, name: str) -> dict[str, str] | None:
        """The values of the placeholders if `name` matches the first of our names, else None."""
        match = _regex(self.patterns[0]).fullmatch(name)
        return None if match is None else match.groupdict()

    def entry(self, bound: Mapping[str, str], shapes: Mapping[str, Shape], alias: Mapping[str, str]) -> StoredPlace:
        """The row at one place of a model. `alias` gives the first name of what is shared."""
        ours = tuple(alias.get(name, name) for name in (_fill(pattern, bound) for pattern in self.patterns))
        count = shapes[ours[0]][0] if "{e}" in self.theirs else 1
        theirs = [_fill(p, {**bound, "e": str(e)}) for p in _alternatives(self.theirs) for e in range(count)]
        return StoredPlace(tuple(theirs), ours, self.how, tuple(shapes[name] for name in ours), self.copied, self.zero)


@dataclass(frozen=True)
class StoredPlace:
    """One place of a model: its tensors under their names and under ours, `shapes` being ours."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    how: TensorTransform
    shapes: tuple[Shape, ...]
    copied: bool = False
    zero: bool = False

    @property
    def their_shapes(self) -> list[Shape]:
        return self.how.shapes(self.shapes)

    def split(self) -> list[StoredPlace]:
        """One entry for each tensor, if they are the same on both sides, name for name; else this one."""
        if self.how is not SAME:
            return [self]
        rows = zip(self.theirs, self.ours, self.shapes, strict=True)
        return [StoredPlace((theirs,), (ours,), SAME, (shape,)) for theirs, ours, shape in rows]

    def to_ours(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        ours = self.how.to_ours([tensors[name] for name in self.theirs], self.shapes)
        return dict(zip(self.ours, ours, strict=True))

    def to_theirs(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theirs = self.how.to_theirs([tensors[name] for name in self.ours])
        return dict(zip(self.theirs, theirs, strict=True))


@dataclass(frozen=True)
class Names:
    """A table of names applied to one model.

    shapes:  of every tensor of ours; a shared tensor under its first name.
    alias:   the first name of a shared tensor, by each of its other names.
    entries: every row at every place, in the table's order.
    """

    shapes: Mapping[str, Shape]
    alias: Mapping[str, str]
    entries: tuple[StoredPlace, ...]
    meaningless: tuple[re.Pattern[str], ...] = field(default=())

    @classmethod
    def of(cls, table: Iterable[Row], model: nn.Module) -> Names:
        """The table's rows for a model, which may be on the meta device.

        Raises ValueError if a tensor of ours has no row: the table belongs to other models.
        """
        shapes, alias = tensor_names(model)
        table = tuple(table)
        entries = tuple(
            row.entry(bound, shapes, alias)
            for row in table
            if row.ours
            for name in (*shapes, *alias)
            if (bound := row.match(name)) is not None
        )
        known = {name for entry in entries for name in entry.ours}
        for name in shapes:
            if name not in known:
                raise ValueError(f"the table of names has no row for {brief(name)}")
        return cls(shapes, alias, entries, tuple(_regex(row.theirs) for row in table if not row.ours))

    def written(self) -> Iterator[StoredPlace]:
        """One entry for each tensor of ours, the first in the table, and the entries of further copies."""
        done: set[str] = set()
        for entry in self.entries:
            if entry.copied or not done.issuperset(entry.ours):
                done.update(entry.ours)
                yield entry

    def read(self, present: Mapping[str, Shape], where: str = "the file", beside: bool = False) -> Reading:
        """Which entries to read from a file with tensors of these names and shapes.

        Raises ValueError naming the tensors that are missing, unexpected or of a wrong shape. With `beside`, tensors outside
        all modules of the model, such as another head, are allowed; `Reading.unused` names them.
        """
        taken: list[StoredPlace] = []
        again: list[StoredPlace] = []
        done: set[str] = set()
        for entry in self.entries:
            if all(name in present for name in entry.theirs):
                if not _fits(entry, present) and any(
                    other.theirs == entry.theirs and _fits(other, present) for other in self.entries
                ):
                    continue  # files have one of two forms
                _check_shapes(entry, present, where)
                (again if done.issuperset(entry.ours) else taken).append(entry)
                done.update(entry.ours)
        zeros = [e for e in self.written() if e.zero and done.isdisjoint(e.ours)]
        self._check_complete(done.union(*(entry.ours for entry in zeros)), present, where)
        used = {name for entry in (*taken, *again) for name in entry.theirs}
        spare = [n for n in present if n not in used and not any(p.fullmatch(n) for p in self.meaningless)]
        known = [name for entry in self.written() for name in entry.theirs]
        within = {_module(name) for name in known}
        refused = [name for name in spare if not beside or _module(name) in within]
        if refused:
            raise ValueError(f"{where} holds {listed(refused)}, which this model lacks; {nearest(refused[0], known)}")
        return Reading(tuple(taken), tuple(again), tuple(spare), tuple(zeros))

    def _check_complete(self, done: set[str], present: Mapping[str, Shape], where: str) -> None:
        lacking = [e for e in self.written() if not done.issuperset(e.ours)]
        missing = [name for entry in lacking for name in entry.theirs if name not in present]
        if missing:
            raise ValueError(f"{where} lacks {listed(missing)}, which this model has")

    def lacks(self, entry: StoredPlace) -> bool:
        """Whether an entry, of another model's names, has a tensor that this model lacks."""
        return any(name not in self.shapes and name not in self.alias for name in entry.ours)

    def to_ours(self, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All tensors under our names: a file's tensors, or their gradients."""
        reading = self.read({name: tuple(t.shape) for name, t in theirs.items()})
        ours = {name: t for entry in reading.taken for name, t in entry.to_ours(theirs).items()}
        return ours | {name: torch.zeros(self.shapes[name]) for entry in reading.zeros for name in entry.ours}

    def to_theirs(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All tensors under their names."""
        return {name: t for entry in self.written() for name, t in entry.to_theirs(ours).items()}


@dataclass(frozen=True)
class Reading:
    """What to read from a file; `again` are further copies of shared tensors, which have to be equal to the first; `unused`
    are tensors of the file outside the model, and `zeros` what is 0 since the file lacks it."""

    taken: tuple[StoredPlace, ...]
    again: tuple[StoredPlace, ...]
    unused: tuple[str, ...] = ()
    zeros: tuple[StoredPlace, ...] = ()


def tensor_names(model: nn.Module) -> tuple[dict[str, Shape], dict[str, str]]:
    """The shape of every tensor of a model, and for shared tensors the first name by each other name."""
    shapes: dict[str, Shape] = {}
    alias: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        known = first.setdefault(id(tensor), name)
        if known == name:
            shapes[name] = tuple(tensor.shape)
        else:
            alias[name] = known
    return shapes, alias


def _fits(entry: StoredPlace, present: Mapping[str, Shape]) -> bool:
    return all(present[name] == shape for name, shape in zip(entry.theirs, entry.their_shapes, strict=True))


def _check_shapes(entry: StoredPlace, present: Mapping[str, Shape], where: str) -> None:
    for name, wanted in zip(entry.theirs, entry.their_shapes, strict=True):
        if present[name] != wanted:
            raise ValueError(f"{where}: {name} is of shape {present[name]}, and the model's of {wanted}")


def _alternatives(pattern: str) -> tuple[str, ...]:
    """`a.[q,k].b` is `a.q.b` and `a.k.b`."""
    before, bracket, rest = pattern.partition("[")
    if not bracket:
        return (pattern,)
    inside, _, after = rest.partition("]")
    return tuple(before + choice + after for choice in inside.split(","))


@lru_cache(maxsize=4096)  # a table's patterns are tried on every name
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w\}|\*)", pattern)
    spelled = ["(?P<rest>.+)" if p == "*" else rf"(?P<{p[1]}>\d+)" if p[:1] == "{" else re.escape(p) for p in parts]
    return re.compile("".join(spelled))


def _fill(pattern: str, bound: Mapping[str, str]) -> str:
    return re.sub(r"\{\w\}|\*", lambda match: bound["rest" if match[0] == "*" else match[0][1]], pattern)


def _module(name: str) -> str:
    """The outermost module of a tensor's name."""
    return name.partition(".")[0]


def listed(names: Sequence[str]) -> str:
    """The first three of some names, and how many more there are."""
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
