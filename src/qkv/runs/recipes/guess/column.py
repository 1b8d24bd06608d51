"""A column of a table, by some of its values: what they may be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import median

from ....data.classes import missing_label
from ....data.files.number_tables import FLAGS, finite, spelling
from ....data.files.timestamps import are_dates

LABELS = frozenset({
    "label", "labels", "class", "classes", "category", "topic", "sentiment", "stars", "rating", "intent", "emotion", "tag",
})  # fmt: skip
SCORES = frozenset({"score", "similarity", "sim", "gold", "relatedness"})
ASIDE = frozenset({
    "id", "idx", "index", "no", "nr", "number", "line", "row", "key", "url", "link", "date", "time", "timestamp",
})  # fmt: skip
NAMELESS = "(no name)"
ID = re.compile(r"(?i:(?:^|[ _-])id)$|[a-z]I[Dd]$")
INDEX = re.compile(rf"{re.escape(NAMELESS)}|Unnamed: \d+|level_\d+")
THOUSANDS = re.compile(r"-?[1-9]\d{0,2}\.\d{3}")
ADDRESS = re.compile(
    r"([a-z][\w+.-]*://|www\.)\S+|[^\s@]+@[^\s@]+\.\w+|(?=[a-f-]*\d)[0-9a-f]{8,}(-[0-9a-f]+)*", re.IGNORECASE
)  # a web address, a mail address, or a hexadecimal id
_ENOUGH = 10  # rows that show whether numbers count them
DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d{2}")


@dataclass(frozen=True)
class Column:
    """A column by its name or number, and some of its values. `missing` are texts that stand for no value; `decimal` is the
    mark that its numbers had; `heading` its name in the file if it is numbered, `blank` what an empty value is; `at` the
    number of each value's `unit` in the file."""

    name: str | int
    cells: list[str]
    missing: tuple[str, ...] | None = None
    decimal: str = "."
    heading: str = ""
    blank: str = "empty"
    at: Sequence[int] = ()
    unit: str = "line"

    def with_points(self, thousands: bool) -> Column:
        """The column with decimal points if its values are numbers with decimal commas. Three digits behind each comma may
        be thousands; `thousands` says that they are."""
        if thousands and all(THOUSANDS.fullmatch(cell.replace(",", ".")) for cell in self.filled if "," in cell):
            return self
        points = replace(self, cells=[cell.replace(",", ".") for cell in self.cells], decimal=",")
        return points if any("," in cell for cell in self.filled) and points.numbers > 0.9 else self

    @cached_property
    def filled(self) -> list[str]:
        return [cell for cell in self.cells if not self.is_missing(cell)]

    @property
    def placed(self) -> list[tuple[str, str]]:
        """Where each value is, such as "line 7", and the value."""
        places = [f"{self.unit} {line:,}" for line in self.at] or [""] * len(self.cells)
        return list(zip(places, self.cells, strict=True))

    def is_missing(self, cell: str) -> bool:
        return missing_label(cell, self.name, self.missing) is not None

    @property
    def lacking(self) -> tuple[str, ...]:
        """A sentence on values that are missing, if there are any."""
        if not (lacking := len(self.cells) - len(self.filled)):
            return ()
        how = ", ".join(sorted({cell.strip() or self.blank for cell in self.cells} - {*map(str.strip, self.filled)}))
        return (
            f"{lacking:,} of {len(self.cells):,} cells of {self.title} that were looked at are missing ({how}); their "
            "rows are skipped",
        )

    @property
    def is_sparse(self) -> bool:
        """Whether more than a tenth of its values are missing."""
        return 10 * (len(self.cells) - len(self.filled)) > len(self.cells)

    @property
    def blanks(self) -> tuple[str, ...]:
        """A sentence on texts that are empty, if there are any."""
        if not (blank := sum(not cell.strip() for cell in self.cells)):
            return ()
        return (
            f"{blank:,} of {len(self.cells):,} cells of {self.title} that were looked at hold no text ({self.blank}); their "
            "rows are skipped",
        )

    @property
    def title(self) -> str:
        return self.heading or str(self.name)

    @property
    def is_index(self) -> bool:
        """Whether the column is the index of a data frame: numbers without a name, or with the name that pandas gives it."""
        return bool(INDEX.fullmatch(self.title)) and all(cell.isdigit() for cell in self.filled)

    @property
    def marks(self) -> tuple[str, ...]:
        """A sentence on commas that are read as decimal points, and on points that may separate thousands."""
        example = next((cell for cell in self.filled if "." in cell), "")
        three = all(THOUSANDS.fullmatch(cell) for cell in self.filled if "." in cell)
        more = "; if they separate thousands, as three digits behind each suggest, remove them first" if three else ""
        if self.decimal == ",":
            return (f"commas in {self.title} are decimal points: {example.replace('.', ',')} is {example}{more}",)
        return (f"points in {self.title} are decimal points, as in {example}{more}",) if example and more else ()

    @cached_property
    def numbers(self) -> float:
        """The share of values that are numbers."""
        return sum(finite(cell) is not None for cell in self.filled) / max(1, len(self.filled))

    @cached_property
    def spelled(self) -> str | None:
        """What is unusual in its numbers, such as "a percent sign", if most of them are not read because of it."""
        how = Counter(map(spelling, self.filled))
        kind, n = max(((kind, n) for kind, n in how.items() if kind), key=lambda one: one[1], default=(None, 0))
        alike = len({re.sub(r"[\W\d]", "", cell) for cell in self.filled}) <= 2 or kind != "a unit"
        return (
            kind if alike and n > 0.5 * len(self.filled) and n > 0.9 * (1 - self.numbers) * len(self.filled) else None
        )

    @cached_property
    def distinct(self) -> int:
        return len(set(self.filled))

    @cached_property
    def words(self) -> float:
        """The median number of words."""
        return median(len(cell.split()) for cell in self.filled) if self.filled else 0

    def is_called(self, names: frozenset[str]) -> bool:
        return self.title.lower() in names

    @property
    def is_aside(self) -> bool:
        return self.is_called(ASIDE)

    @cached_property
    def is_dates(self) -> bool:
        found = sum(bool(DATE.match(cell)) for cell in self.filled)
        return found > 0.9 * max(1, len(self.filled)) or are_dates(self.filled)

    @property
    def holds_addresses(self) -> bool:
        """Whether its values are web or mail addresses, or ids in hexadecimal digits."""
        return sum(bool(ADDRESS.fullmatch(cell.strip())) for cell in self.filled) > 0.9 * max(1, len(self.filled))

    @property
    def is_flag(self) -> bool:
        """Whether its values are true and false, as which a series reads 1 and 0."""
        return bool(self.filled) and all(cell.lower() in FLAGS for cell in self.filled)

    @property
    def is_text(self) -> bool:
        """Texts: mostly different values of several words, or of a script without spaces."""
        if self.numbers > 0.5 or self.spelled or self.is_dates or self.is_called(ASIDE | LABELS):
            return False
        long = self.words >= 2 or median(map(len, self.filled or [""])) >= 8
        return long and self.distinct > 0.3 * len(self.filled)

    @property
    def is_label(self) -> bool:
        """Few different values: each class has some examples."""
        if self.is_called(LABELS):
            return self.distinct > 1 and not self.is_measured
        few = 2 <= self.distinct <= max(2, len(self.filled) // 3)
        whole = self.numbers < 0.5 or all(cell.lstrip("-").isdigit() for cell in self.filled)
        return few and whole and not self.is_called(ASIDE | SCORES) and self.words <= 4

    @property
    def is_measured(self) -> bool:
        """Numbers with decimals that hardly repeat."""
        fractions = sum(
            "." in cell and not float(cell).is_integer() for cell in self.filled if finite(cell) is not None
        )
        return self.numbers > 0.9 and fractions > 0.5 * len(self.filled) and self.distinct > len(self.filled) // 3

    @property
    def is_one_class(self) -> bool:
        return self.is_called(LABELS) and self.distinct == 1

    @property
    def is_score(self) -> bool:
        return self.numbers > 0.9 and self.distinct > 1 and not self.is_called(ASIDE) and not self.counts_rows

    @cached_property
    def counts_rows(self) -> bool:
        """Whether its values number or name the rows: whole numbers each one more than the last, or different ones below a
        name such as `user_id`."""
        whole = [int(cell) for cell in self.filled if re.fullmatch(r"\d{1,18}", cell)]
        if len(whole) < _ENOUGH or len(whole) < len(self.filled):
            return False
        steps = {after - before for before, after in pairwise(whole)}
        return steps == {1} or (len(set(whole)) == len(whole) and ID.search(self.title) is not None)

    def __str__(self) -> str:
        example = self.filled[0] if self.filled else ""
        return f"{self.title} ({example[:40]!r}{' …' if len(example) > 40 else ''})"
