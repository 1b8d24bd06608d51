"""`PublishedResult`: a published result, how it is reproduced, and every difference of set-up (`entries/NAME.yaml`)."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from ...core import yamls
from ...core.spec import Spec, brief, nearest

Goal = Literal["at least", "at most", "within 2 %", ""]
_PACKED = ("", ".gz", ".xz")  # endings with which a file may be kept


class PublishedFigure(Spec):
    """A number that is published, and where the commands leave ours.

    published: the number, or what the source says in words.
    goal:      how ours compares if it is met; empty if the two can't be compared strictly.
    target:    what ours is compared with; by default the published number.
    file, key: a JSON file below the folder of the runs and the path to a value in it (`metrics.bleu`); `a / b` is a ratio.
    factor:    what the value is multiplied by, 100 for percentages.
    """

    name: str
    published: float | str
    goal: Goal = ""
    target: float | None = None
    file: str
    key: str
    factor: float = 1.0
    digits: Annotated[int, Field(ge=0)] = 2
    unit: str = ""

    @property
    def aim(self) -> float | None:
        """The number that ours is compared with."""
        if not self.goal:
            return None
        return self.target if self.target is not None else float(self.published)

    def met(self, ours: float) -> bool | None:
        """Whether our number meets the goal; None without a goal."""
        aim = self.aim
        if aim is None:
            return None
        if self.goal == "at least":
            return ours >= aim
        return ours <= aim if self.goal == "at most" else abs(ours - aim) <= 0.02 * abs(aim)

    def shown(self, value: float | str) -> str:
        if isinstance(value, str):
            return value
        return f"{value:,.{self.digits}f}{' ' if self.unit else ''}{self.unit}"

    def read(self, out: Path) -> float:
        """Our number, from the files that the commands left. Raises ValueError if it is not there."""
        path = out / self.file
        if not path.is_file():
            raise ValueError(f"{path} is missing, where {self.name} should be")
        data = json.loads(path.read_text(encoding="utf-8"))
        values = [_at(data, key.strip(), path) for key in self.key.split(" / ")]
        return self.factor * (values[0] if len(values) == 1 else values[0] / values[1])


class DataFile(Spec):
    """A file of a data set: its name, the folder in which data sets are usually kept apart, and where to download it."""

    name: str
    folder: str = ""
    url: str

    def find(self, data: Path) -> Path | None:
        """The file below `data`, in the folder of its set or not, compressed or not."""
        plain = self.name.removesuffix(".gz")
        for folder in (data / self.folder, data):
            for name in (self.name, *(f"{plain}{ending}" for ending in _PACKED)):
                if (folder / name).is_file():
                    return folder / name
        return None


class PublishedResult(Spec):
    """A published result.

    title, source, link: what was published, by whom, and where.
    data:        files to download before; none if the data are generated.
    prepare:     a function of `prepare.PREPARATIONS` that makes files for the commands from them.
    steps:       commands of qkv, in order. {out} is the folder of the runs, {NAME} the path of a file of `data`.
    figures:     the numbers to compare.
    differences: every difference of set-up between the publication and ours, a sentence each.
    ranked:      whether the figures are of one kind, so their published order is compared with ours.
    minutes:     that the commands take on one thread, about.
    """

    name: str = ""
    title: str
    source: str
    link: str
    data: tuple[DataFile, ...] = ()
    prepare: str = ""
    steps: tuple[str, ...]
    figures: tuple[PublishedFigure, ...] = Field(min_length=1)
    differences: tuple[str, ...]
    ranked: bool = False
    minutes: float

    @classmethod
    def load(cls, name: str) -> Self:
        """Load an entry. Raises ValueError for an unknown name, with the nearest known ones."""
        if name not in names():
            raise ValueError(f"there is no published result {brief(name)}; {nearest(name, names())}")
        text = (_folder("entries") / f"{name}.yaml").read_text(encoding="utf-8")
        return cls.from_dict({**yamls.load(text, name), "name": name})

    def files(self, data: Path | None) -> dict[str, Path]:
        """The paths of the data files by name. Raises ValueError with all that are missing and where to get them."""
        found = {one.name: None if data is None else one.find(data) for one in self.data}
        missing = [one for one in self.data if found[one.name] is None]
        if missing:
            where = "; ".join(f"{one.name} from {one.url}" for one in missing)
            place = "give the folder with --data DIR" if data is None else f"it is not in {data}"
            raise ValueError(f"{self.name} needs data, and {place}; download {where}")
        return {name: path for name, path in found.items() if path is not None}


class KeptResult(Spec):
    """What was measured of an entry (`results/NAME.json`).

    figures:  by name.
    date, machine, versions, minutes: when, where and how long.
    origin:   the command, or where an earlier measurement is described.
    remarks:  what else a reader must know, such as a smaller set-up than that of the entry's commands.
    """

    figures: dict[str, float]
    date: str
    machine: str
    versions: str
    minutes: float | None = None
    origin: str
    remarks: tuple[str, ...] = ()


@cache
def names() -> tuple[str, ...]:
    """The names of all entries."""
    found = (path.name for path in _folder("entries").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def kept(name: str) -> KeptResult | None:
    """What was measured of an entry before this version was made; None if nothing was."""
    path = _folder("results") / f"{name}.json"
    return KeptResult.from_dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def _folder(name: str) -> Any:
    return files(__package__) / name


def _at(data: Any, key: str, path: Path) -> float:
    value = data
    for part in key.split("."):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ValueError(f"{path} has no {key}") from None
    return float(value)
