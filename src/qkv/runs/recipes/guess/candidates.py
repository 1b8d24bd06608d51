"""Guess a recipe for multiple choice with a column for each candidate, such as A, B, C, D or `option1`, `option2`."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from itertools import count as numbers
from pathlib import Path
from typing import Any

from ....core.spec import counted
from .column import ASIDE
from .result import Guess, setting

_ANSWERS = (
    "answer",
    "answer_key",
    "answerkey",
    "correct",
    "correct_answer",
    "correct_option",
    "label",
    "gold",
    "target",
)
_STEMS = ("", "option", "opt", "op", "choice", "candidate", "ending", "sol", "solution", "answer", "ans")
_NAME = re.compile(rf"({'|'.join(_STEMS)})[ _-]?([a-h]|[0-9])", re.IGNORECASE)
_TEXTS = ("question", "text", "context", "ctx", "sentence", "premise", "prompt", "goal", "stem")


def of_candidate_columns(path: Path, fields: Mapping[str, Sequence[Any]], count: int) -> Guess | str | None:
    """A guess for `count` records with a column for each candidate and one for the answer, or what was seen if the answers
    are none that `choices` reads; None if there are no such columns."""
    columns = _numbered(fields)
    answer = next((name for name in fields if name.lower() in _ANSWERS and name not in columns), None)
    others = [name for name in fields if name not in (*columns, answer) and name.lower() not in ASIDE]
    text = next((name for name in others if name.lower() in _TEXTS), next(iter(others), None))
    if len(columns) < 2 or answer is None or text is None:
        return None
    answers = {str(value).strip() for value in fields[answer]}
    seen = f"{counted(count, 'line')}; {', '.join(columns)} hold candidates, and {answer} the right one"
    letters, n = string.ascii_uppercase[: len(columns)], len(columns)
    named = answers <= {str(value).strip() for name in columns for value in fields[name]}
    if answers <= set(map(str, range(1, n + 1))) and str(n) in answers and "0" not in answers and not named:
        return f"{seen} by its number from 1; number the candidates from 0, or write their letters from A"
    if not (answers <= set(map(str, range(n))) or {one.upper() for one in answers} <= set(letters) or named):
        return None
    settings = setting("data.text", text), setting("data.choices", columns), setting("data.answer", answer)
    return Guess("choose", ("data.kind=choices", setting("data.path", path), *settings), (seen,))


def _numbered(fields: Mapping[str, Sequence[Any]]) -> list[str]:
    """The names of fields that are numbered alike from the first letter, 0 or 1 on, in order: of the longest such row."""
    stems: dict[str, dict[str, str]] = {}
    for name in fields:
        if match := _NAME.fullmatch(name.strip()):
            stems.setdefault(match[1].lower(), {})[match[2].lower()] = name
    rows: list[list[str]] = []
    for named in stems.values():
        for first in "a01":
            row: list[str] = []
            for at in numbers(ord(first)):
                if chr(at) not in named:
                    break
                row.append(named[chr(at)])
            rows.append(row)
    return max(rows, key=len, default=[])
