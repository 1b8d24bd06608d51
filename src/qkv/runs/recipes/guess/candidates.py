"""Guess a recipe for multiple choice with a column for each candidate, such as A, B, C, D or `option1`, `option2`."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from ....core.spec import counted
from .column import ASIDE
from .result import Guess, setting

_ANSWERS = (
    "answer", "answer_key", "answerkey", "correct", "correct_answer", "correct_option", "label", "gold", "target",
)  # fmt: skip
_STEMS = ("", "option", "opt", "op", "choice", "candidate", "ending", "sol", "solution", "answer", "ans")
_NAME = re.compile(rf"({'|'.join(_STEMS)})[ _-]?([a-h]|[0-9])", re.IGNORECASE)
_TEXTS = ("question", "text", "context", "ctx", "sentence", "premise", "prompt", "goal", "stem")


def of_candidate_columns(path: Path, fields: Mapping[str, Sequence[Any]], rows: int) -> Guess | str | None:
    """Guess a recipe for `rows` records with a column for each candidate and one for the answer, or return what was seen if
    `choices` can't read the answers. Return None if there are no such columns."""
    columns = _candidates(fields)
    answer = next((name for name in fields if name.lower() in _ANSWERS and name not in columns), None)
    others = [name for name in fields if name not in (*columns, answer) and name.lower() not in ASIDE]
    text = next((name for name in others if name.lower() in _TEXTS), next(iter(others), None))
    if len(columns) < 2 or answer is None or text is None:
        return None
    answers = {str(value).strip() for value in fields[answer]}
    seen = f"{counted(rows, 'line')}; {', '.join(columns)} hold candidates, and {answer} the right one"
    letters, n = string.ascii_uppercase[: len(columns)], len(columns)
    named = answers <= {str(value).strip() for name in columns for value in fields[name]}
    if answers <= set(map(str, range(1, n + 1))) and str(n) in answers and "0" not in answers and not named:
        return f"{seen} by its number from 1; number the candidates from 0, or write their letters from A"
    if not (answers <= set(map(str, range(n))) or {one.upper() for one in answers} <= set(letters) or named):
        return None
    settings = setting("data.text", text), setting("data.choices", columns), setting("data.answer", answer)
    return Guess("choose", ("data.kind=choices", setting("data.path", path), *settings), (seen,))


def _candidates(fields: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the longest series of field names with one stem and consecutive letters from a, or numbers from 0 or 1."""
    stems: dict[str, dict[str, str]] = {}
    for name in fields:
        if match := _NAME.fullmatch(name.strip()):
            stems.setdefault(match[1].lower(), {})[match[2].lower()] = name
    series: list[list[str]] = []
    for named in stems.values():
        for first in "a01":
            marks = takewhile(named.__contains__, map(chr, count(ord(first))))
            series.append([named[mark] for mark in marks])
    return max(series, key=len, default=[])
