"""Guess a recipe for the columns of a table: pairs, labels, scores, text or numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ....core.spec import counted
from ....data.classes import different, joined, spellings
from ....data.files.number_tables import finite
from ....data.odd_rows import merged
from ....data.source import SPLIT_NAMES
from .column import LABELS, NAMELESS, SCORES, Column
from .numbers import gaps, odd_classes, odd_scores, single_classes, unused
from .result import Guess, setting
from .word_tags import tags_in

ROWS = 2000  # that are looked at
_BY_NAME = ("data.sep=", "data.quote=", "data.escape=")  # settings of tables whose columns have names
ASKED = frozenset(("prompt", "instruction", "question"))
_LEAST = 60  # rows of a series
_ANCHORS, _POSITIVES = frozenset(("anchor", "query")), frozenset(("positive", "pos"))
ANSWERED = frozenset(("completion", "response", "answer", "output"))


def of_columns(path: Path, columns: list[Column], rows: int, more: tuple[str, ...], table: bool) -> Guess | str:
    """Guess a recipe for a table's columns, or return what was seen if nothing fits. `more` are settings of the source."""
    columns, more = _numbered(columns, more)
    split = next(filter(_tells_split, columns), None)
    found = _of_columns(path, columns, split, rows, more, table)
    if split is None or isinstance(found, str):
        return found
    said = f"{split.title} tells the split of each row ({', '.join(sorted({c.strip().lower() for c in split.filled}))})"
    if "data.kind=labelled" in found.settings and len(split.filled) == len(split.cells):
        seen = f"{said}; data.split=null reads all rows for training"
        return replace(found, settings=(*found.settings, setting("data.split", split.name)), seen=(*found.seen, seen))
    said += (
        ", and is not read: training takes rows of every split; save those of each in a file of its own, and give these "
        "(train.csv dev.csv test.csv)"
    )
    return replace(found, seen=(*found.seen, said))


def _tells_split(column: Column) -> bool:
    """Whether a column tells the split of each row."""
    names = {cell.strip().lower() for cell in column.filled}
    return len(names) > 1 and names <= SPLIT_NAMES.keys()


def _of_columns(
    path: Path, columns: list[Column], split: Column | None, rows: int, more: tuple[str, ...], table: bool
) -> Guess | str:
    """Guess a recipe for the columns other than `split`."""
    empty = [column.title for column in columns if not column.filled]
    columns = [column for column in columns if column.filled]
    listed = ", ".join(map(str, columns[:8])) + (" …" if len(columns) > 8 else "")
    seen: tuple[str, ...] = (f"{counted(rows, 'row')} of {counted(len(columns), 'column')}: {listed}",)
    if empty:
        seen += (
            f"without a text or number in the rows that were looked at: {', '.join(empty[:8])}{' …' if empty[8:] else ''}",
        )
    columns = [column for column in columns if column is not split]
    if (tags := tags_in(columns)) is not None:
        return f"{seen[0]}; {tags}"
    texts = [column for column in columns if column.is_text]
    aside = [column for column in texts if column.holds_addresses]
    if len(aside) < len(texts):
        texts = [column for column in texts if column not in aside]
        seen += tuple(f"{column.title} is not used: its values are addresses or ids" for column in aside)
    place = setting("data.path", path)
    if not texts and (series := _series(place, columns, rows, seen, more)):
        return series
    label, score = label_and_score([column for column in columns if column not in texts and not column.is_index])
    if len(texts) > 2:
        seen += (
            f"of {len(texts)} columns of text the first two are used, and not {', '.join(c.title for c in texts[2:6])}",
        )
        texts = texts[:2]
    if label is None and score is None:
        seen += tuple(unused([column for column in columns if column not in texts]))
    if not texts:
        other = (
            "; if another character separates its cells, name it with data.sep" if table and len(columns) == 1 else ""
        )
        return f"{'; '.join(seen)}; that is neither pairs, labels, scores nor numbers{other}"
    seen += tuple(said for text in texts for said in text.blanks)
    labelled = ("data.kind=labelled", place, *more, setting("data.text", texts[0].name))
    labelled += (setting("data.pair", texts[1].name),) if len(texts) == 2 else ()
    answers = len(texts) == 2 and texts[0].is_called(ASKED) and texts[1].is_called(ANSWERED)
    if label is None:
        seen += tuple(f"{c.title} is not used: its only class is {c.filled[0]!r}" for c in columns if c.is_one_class)
    if label is not None:
        if answers and {cell.lower() for cell in label.filled} == {"true", "false"}:
            seen += ("this learns to tell good answers from others (a reward model), not to give them (as KTO does)",)
        seen = (*seen, classes_in(label), *_other_labels(label, texts, columns), *joined(dict.fromkeys(label.filled)))
        seen = (*seen, *label.lacking, *merged(label.title, label.cells), *odd_classes(label), *single_classes(label))
        seen = (*seen, *map(different, spellings(dict.fromkeys(label.filled))), *_compared(label, texts, columns))
        return Guess("classify", (*labelled, setting("data.label", label.name)), seen)
    if score is not None:
        seen, labelled = (*seen, *score.lacking, *odd_scores(score), *score.marks), (*labelled, *_decimal(score))
        if len(texts) < 2 or answers:
            return Guess("classify", (*labelled, "task=regress", setting("data.score", score.name)), seen)
        values = [value for cell in score.filled if (value := finite(cell)) is not None]
        bounds = (f"task.low={min(values):g}", f"task.high={max(values):g}")
        return Guess("similarity", (*labelled, setting("data.score", score.name), *bounds), seen)
    if len(texts) == 2:
        return _two_texts(texts, place, more, labelled, seen)
    if not table or (isinstance(texts[0].name, str) and all(one.startswith(_BY_NAME) for one in more)):
        return Guess(
            "lm", ("data.kind=jsonl", place, *(more if table else ()), setting("data.text", texts[0].name)), seen
        )
    return f"{seen[0]}; one column of text alone needs a name (a line `text` above it)"


def _two_texts(
    texts: list[Column], place: str, more: tuple[str, ...], labelled: tuple[str, ...], seen: tuple[str, ...]
) -> Guess:
    """An embedder for texts and what is near to them, by the columns' names, or a translation."""
    first, second = texts
    if first.is_called(_ANCHORS) and second.is_called(_POSITIVES):
        said = f"{second.title} is near to {first.title}, and far from the other texts of a batch"
        return Guess("similarity", (*labelled, "objective=contrastive"), (*seen, said))
    sides = setting("data.source_column", first.name), setting("data.target_column", second.name)
    return Guess("translate", (place, *more, *sides), (*seen, f"{first.title} is translated to {second.title}"))


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
    labels = sorted(
        (c for c in columns if c.is_label), key=lambda c: (not c.is_called(LABELS), c.is_sparse, c.distinct)
    )
    scores = sorted(
        (c for c in columns if c.is_score and not (c.is_called(LABELS) and c.is_label)),
        key=lambda c: not c.is_called(SCORES),
    )
    if labels and labels[0].is_called(LABELS):
        return labels[0], None
    if scores and (scores[0].is_called(SCORES) or not labels):
        return None, scores[0]
    return (labels[0], None) if labels else (None, None)


def _other_labels(label: Column, texts: list[Column], columns: list[Column]) -> tuple[str, ...]:
    """A sentence on columns that could be the class as well as the one that is, unless its name says that it is one."""
    others = [] if label.is_called(LABELS) else [one for one in columns if one not in (label, *texts) and one.is_label]
    others = [one for one in others if not one.is_index]
    if not others:
        return ()
    listed = ", ".join(one.title for one in others[:8]) + (" …" if others[8:] else "")
    what = "could be the class too, and is not used" if len(others) == 1 else "could be the class too, and are not used"
    return (f"{listed} {what} ({setting('data.label', others[0].name)} chooses it)",)


def _compared(label: Column, texts: list[Column], columns: list[Column]) -> Iterator[str]:
    """Yield a sentence if the class may tell which of two columns is better, and the recipe doesn't read both."""
    sides = [(c, str(c.name)[-2:].lower()) for c in columns if c is not label]
    answers = [column for column, side in sides if side in ("_a", "_b")]
    if not {side for _, side in sides} >= {"_a", "_b"} or all(answer in texts for answer in answers):
        return
    listed = " and ".join(column.title for column in answers)
    yield (
        f"if {label.title} tells which of {listed} is better, this learns it without reading both: write a row for each "
        "answer, with the class good or bad"
    )


def classes_in(label: Column) -> str:
    classes = Counter(label.filled).most_common()
    listed = ", ".join(f"{name} ({n:,})" for name, n in classes[:6]) + (" …" if len(classes) > 6 else "")
    return f"{label.title} is the class, one of {len(classes)}: {listed}"


def _series(
    place: str, columns: list[Column], rows: int, seen: tuple[str, ...], more: tuple[str, ...]
) -> Guess | str | None:
    """Forecasts of a table of numbers with a row for each time, or why there are none."""
    time = next((column for column in columns if column.is_dates), columns[0] if columns else None)
    rest = [column for column in columns if column is not time]
    if (
        time is None
        or (time.is_aside and not rest)
        or any(column.numbers < 0.9 and not column.is_flag for column in rest)
        or not (time.numbers >= 0.9 or (rest and time.is_dates))
        or "data.format=jsonl" in more
    ):
        return None
    if rows < _LEAST:
        dated = f"; {time.title} has dates, and the others numbers: a series to forecast needs at least {_LEAST} rows"
        return f"{'; '.join(seen)}{dated}" if time.is_dates else None
    history = 96 if rows >= 1000 else max(12, rows // 12 // 12 * 12)
    horizon = max(2, history // 4)
    patch = 8 if history % 8 == 0 else 4
    settings: tuple[str, ...] = (
        "data.kind=series",
        place,
        *(one for one in more if one.startswith(("data.sep=", "data.header="))),
        f"data.history={history}",
        f"data.horizon={horizon}",
        f"model.image=[1,{history}]",
        f"model.patch=[1,{patch}]",
    )
    without = [said for column in rest or [time] if not column.is_flag for said in gaps(column)]
    settings += (*(("data.gaps=fill",) if without else ()), *_decimal(*columns))
    seen += (*without, *(said for column in columns for said in column.marks))
    return Guess("forecast", settings, (*seen, f"numbers by time: the next {horizon} rows from the last {history}"))
