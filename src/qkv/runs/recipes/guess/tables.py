"""Guess a recipe for the columns of a table: pairs, labels, scores, text or numbers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median

from ....core.spec import counted
from ....data.classes import different, missing_label, spellings
from .result import Guess, setting

ROWS = 2000  # that are looked at
LABELS = frozenset(
    (
        "label",
        "labels",
        "class",
        "classes",
        "category",
        "topic",
        "sentiment",
        "stars",
        "rating",
        "intent",
        "emotion",
        "tag",
    )
)
SCORES = frozenset(("score", "similarity", "sim", "gold", "relatedness"))
ASKED = frozenset(("prompt", "instruction", "question"))
ANSWERED = frozenset(("completion", "response", "answer", "output"))
ASIDE = frozenset(
    ("id", "idx", "index", "no", "nr", "number", "line", "row", "key", "url", "link", "date", "time", "timestamp")
)
NAMELESS = "(no name)"
INDEX = re.compile(rf"{re.escape(NAMELESS)}|Unnamed: \d+|level_\d+")
THOUSANDS = re.compile(r"-?[1-9]\d{0,2}\.\d{3}")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d{2}")


@dataclass(frozen=True)
class Column:
    """A column by its name or number, and some of its values. `missing` are texts that stand for no value; `decimal` is the
    mark that its numbers had; `heading` its name in the file if it is numbered, `blank` what an empty value is."""

    name: str | int
    cells: list[str]
    missing: tuple[str, ...] | None = None
    decimal: str = "."
    heading: str = ""
    blank: str = "empty"

    def with_points(self) -> Column:
        """The column with decimal points if its values are numbers with decimal commas."""
        points = replace(self, cells=[cell.replace(",", ".") for cell in self.cells], decimal=",")
        return points if any("," in cell for cell in self.filled) and points.numbers > 0.9 else self

    @cached_property
    def filled(self) -> list[str]:
        return [cell for cell in self.cells if missing_label(cell, self.name, self.missing) is None]

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
    def title(self) -> str:
        return self.heading or str(self.name)

    @property
    def is_index(self) -> bool:
        """Whether the column is the index of a data frame: numbers without a name, or with the name that pandas gives it."""
        return bool(INDEX.fullmatch(self.title)) and all(cell.isdigit() for cell in self.filled)

    @property
    def commas(self) -> tuple[str, ...]:
        """A sentence on commas that are read as decimal points, if the numbers had them."""
        if self.decimal != ",":
            return ()
        example = next(cell for cell in self.filled if "." in cell)
        three = all(THOUSANDS.fullmatch(cell) for cell in self.filled if "." in cell)
        more = "; if they separate thousands, as three digits behind each suggest, remove them first" if three else ""
        return (f"commas in {self.title} are decimal points: {example.replace('.', ',')} is {example}{more}",)

    @cached_property
    def numbers(self) -> float:
        """The share of values that are numbers."""
        return sum(map(is_number, self.filled)) / max(1, len(self.filled))

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
    def is_dates(self) -> bool:
        return sum(bool(DATE.match(cell)) for cell in self.filled) > 0.9 * max(1, len(self.filled))

    @property
    def is_text(self) -> bool:
        """Texts: mostly different values of several words, or of a script without spaces."""
        if self.numbers > 0.5 or self.is_dates or self.is_called(ASIDE | LABELS):
            return False
        long = self.words >= 2 or median(map(len, self.filled or [""])) >= 8
        return long and self.distinct > 0.3 * len(self.filled)

    @property
    def is_label(self) -> bool:
        """Few different values: each class has some examples."""
        if self.is_called(LABELS):
            return self.distinct > 1
        few = 2 <= self.distinct <= max(2, len(self.filled) // 3)
        whole = self.numbers < 0.5 or all(cell.lstrip("-").isdigit() for cell in self.filled)
        return few and whole and not self.is_called(ASIDE | SCORES) and self.words <= 4

    @property
    def is_one_class(self) -> bool:
        return self.is_called(LABELS) and self.distinct == 1

    @property
    def is_score(self) -> bool:
        return self.numbers > 0.9 and self.distinct > 1 and not self.is_called(ASIDE)

    def __str__(self) -> str:
        example = self.filled[0] if self.filled else ""
        return f"{self.title} ({example[:40]!r}{' …' if len(example) > 40 else ''})"


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def of_columns(path: Path, columns: list[Column], rows: int, more: tuple[str, ...], table: bool) -> Guess | str:
    """Guess a recipe for a table's columns, or return what was seen if nothing fits. `more` are settings of the source."""
    columns, more = _numbered(columns, more)
    columns = [column for column in columns if column.filled]
    listed = ", ".join(map(str, columns[:8])) + (" …" if len(columns) > 8 else "")
    seen: tuple[str, ...] = (f"{counted(rows, 'row')} of {counted(len(columns), 'column')}: {listed}",)
    texts = [column for column in columns if column.is_text]
    place = setting("data.path", path)
    if table and not texts and (series := _series(place, columns, rows, seen)):
        return series
    label, score = label_and_score([column for column in columns if column not in texts and not column.is_index])
    if len(texts) > 2:
        seen += (f"of {len(texts)} columns of text the first two are used",)
        texts = texts[:2]
    if not texts:
        other = (
            "; if another character separates its cells, name it with data.sep" if table and len(columns) == 1 else ""
        )
        return f"{seen[0]}; that is neither pairs, labels, scores nor numbers{other}"
    labelled = ("data.kind=labelled", place, *more, setting("data.text", texts[0].name))
    labelled += (setting("data.pair", texts[1].name),) if len(texts) == 2 else ()
    answers = len(texts) == 2 and texts[0].is_called(ASKED) and texts[1].is_called(ANSWERED)
    if label is None:
        seen += tuple(f"{c.title} is not used: its only class is {c.filled[0]!r}" for c in columns if c.is_one_class)
    if label is not None:
        if answers and {cell.lower() for cell in label.filled} == {"true", "false"}:
            seen += ("this learns to tell good answers from others (a reward model), not to give them (as KTO does)",)
        seen = (*seen, classes_in(label), *label.lacking, *map(different, spellings(dict.fromkeys(label.filled))))
        return Guess("classify", (*labelled, setting("data.label", label.name)), seen)
    if score is not None and len(texts) == 2 and not answers:
        values = [float(cell) for cell in score.filled if is_number(cell)]
        bounds = (f"task.low={min(values):g}", f"task.high={max(values):g}")
        seen, labelled = (*seen, *score.lacking, *score.commas), (*labelled, *_decimal(score))
        return Guess("similarity", (*labelled, setting("data.score", score.name), *bounds), seen)
    if score is not None:
        seen, labelled = (*seen, *score.lacking, *score.commas), (*labelled, *_decimal(score))
        return Guess("classify", (*labelled, "task=regress", setting("data.score", score.name)), seen)
    if len(texts) == 2:
        first, second = (text.name for text in texts)
        sides = (setting("data.source_column", first), setting("data.target_column", second))
        said = f"{texts[0].title} is translated to {texts[1].title}"
        return Guess("translate", (place, *more, *sides), (*seen, said))
    if not table or (isinstance(texts[0].name, str) and not more):
        return Guess("lm", ("data.kind=jsonl", place, setting("data.text", texts[0].name)), seen)
    return f"{seen[0]}; one column of text alone needs a name (a line `text` above it)"


def _numbered(columns: list[Column], more: tuple[str, ...]) -> tuple[list[Column], tuple[str, ...]]:
    """Columns with their numbers as names, and the setting that this needs, if names are equal or missing: of more than the
    row numbers of a data frame."""
    columns = [replace(column, heading=NAMELESS) if column.name == "" else column for column in columns]
    names = [column.name for column in columns if not column.is_index]
    if "" not in names and len(set(names)) == len(names):
        return columns, more
    numbered = [replace(column, name=place, heading=column.title) for place, column in enumerate(columns)]
    return numbered, (*more, "data.header=true")


def _decimal(*columns: Column) -> tuple[str, ...]:
    """The setting for numbers with decimal commas."""
    return ("data.decimal=','",) if any(column.decimal == "," for column in columns) else ()


def label_and_score(columns: list[Column]) -> tuple[Column | None, Column | None]:
    """The column of the class, or that of a number to predict: by their names, else by their values."""
    labels = sorted((c for c in columns if c.is_label), key=lambda c: (not c.is_called(LABELS), c.distinct))
    scores = sorted(
        (c for c in columns if c.is_score and not c.is_called(LABELS)), key=lambda c: not c.is_called(SCORES)
    )
    if labels and labels[0].is_called(LABELS):
        return labels[0], None
    if scores and (scores[0].is_called(SCORES) or not labels):
        return None, scores[0]
    return (labels[0], None) if labels else (None, None)


def classes_in(label: Column) -> str:
    classes = Counter(label.filled).most_common()
    listed = ", ".join(f"{name} ({n:,})" for name, n in classes[:6]) + (" …" if len(classes) > 6 else "")
    return f"{label.title} is the class, one of {len(classes)}: {listed}"


def _series(place: str, columns: list[Column], rows: int, seen: tuple[str, ...]) -> Guess | None:
    """Forecasts of a table of numbers with a row for each time."""
    first, rest = columns[0] if columns else None, columns[1:]
    if (
        first is None
        or any(column.numbers < 0.9 for column in rest)
        or not (first.numbers >= 0.9 or (rest and first.is_dates))
    ):
        return None
    if rows < 60:
        return None
    history = 96 if rows >= 1000 else max(12, rows // 12 // 12 * 12)
    horizon = max(2, history // 4)
    patch = 8 if history % 8 == 0 else 4
    settings: tuple[str, ...] = (
        *("data.kind=series", place, f"data.history={history}", f"data.horizon={horizon}"),
        *(f"model.image=[1,{history}]", f"model.patch=[1,{patch}]"),
    )
    gaps = any(column.numbers < 1 or len(column.filled) < len(column.cells) for column in rest or [first])
    settings += (*(("data.gaps=fill",) if gaps else ()), *_decimal(*columns))
    seen += tuple(said for column in columns for said in column.commas)
    return Guess("forecast", settings, (*seen, f"numbers by time: the next {horizon} rows from the last {history}"))
