"""Guess a recipe for records by names and contents of their fields: conversations, preferences, questions, candidates."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....core.spec import brief, counted
from ....data.classes import is_missing
from ....data.files.json_lines import json_file
from ....data.tokenizers.chat.messages import ALPACA, listed
from .candidates import of_candidate_columns
from .column import ASIDE
from .result import Guess, setting
from .tables import ANSWERED
from .word_tags import lists_of_tags

CONVERSATIONS = ("messages", "conversations")  # the fields that are read without being named

_TYPES = {str: "texts", int: "numbers", float: "numbers", bool: "true or false"}

Fields = Mapping[str, Sequence[Any]]
"""The values of each field of the first records, without missing values."""


def of_fields(path: Path, fields: Fields, count: int) -> Guess | str | None:
    """Guess a recipe for `count` records, or return what was seen if nothing fits; None if their columns have to tell."""
    talks = [name for name, values in fields.items() if _holds_conversations(values)]
    if {"chosen", "rejected"} <= set(fields):
        return _preferences(path, fields, talks)
    if (judged := _prodigy(path, fields)) is not None:
        return judged
    if len(talks) > 1 and "prompt" in talks and set(talks) & ANSWERED:
        answer = next(name for name in talks if name in ANSWERED)
        return f"the messages of a conversation are divided among prompt and {answer}; join them in one list `messages`"
    if talks:
        name = next((name for name in CONVERSATIONS if name in talks), talks[0])
        usual = name == CONVERSATIONS[0] or (name == CONVERSATIONS[1] and CONVERSATIONS[0] not in fields)
        settings = (setting("data.path", path), *(() if usual else (setting("data.messages", name),)))
        others = sum(not is_conversation(value) for value in fields[name])
        odd: tuple[str, ...] = ()
        if others:
            verbs = ("was", "holds") if others == 1 else ("were", "hold")
            said = f"{counted(others, 'value')} of {brief(name)} that {verbs[0]} looked at {verbs[1]} no messages"
            odd = (said,)
        return Guess("chat", settings, (f"{counted(count, 'line')}; {brief(name)} holds conversations", *odd))
    if "instruction" in fields and any(answer in fields for _, answer in ALPACA):
        kind = "Alpaca" if "output" in fields else "Dolly"
        seen = f"{counted(count, 'line')} in {kind}'s format, with instructions"
        return Guess("chat", (setting("data.path", path),), (seen,))
    if {"context", "question"} <= set(fields) and {"answer", "answers"} & set(fields):
        return _questions(path, fields, count)
    return (
        lists_of_tags(path, fields, count)
        or _candidates(path, fields, count)
        or of_candidate_columns(path, fields, count)
        or _prompts(path, fields, count)
    )


def _prodigy(path: Path, fields: Fields) -> str | None:
    """Advice for what Prodigy exports: examples that an annotator rejected or ignored, and candidates that are objects."""
    answers = Counter(str(value) for value in fields.get("answer", ()))
    judged = bool(answers) and answers.keys() <= {"accept", "reject", "ignore"}
    options = [one for value in fields.get("options", ()) if isinstance(value, list) for one in value]
    chosen = "accept" in fields and bool(options) and all(isinstance(one, dict) and "id" in one for one in options)
    if chosen and not answers:
        return (
            "it holds the options that an annotator had for each text, and those that were chosen in the field accept, as "
            "Prodigy exports them; keep the chosen one, with pandas as "
            f"`frame = pandas.read_json({str(path)!r}, lines=True); "
            "frame['label'] = frame['accept'].str[0]; frame[['text', 'label']].to_json('chosen.jsonl', orient='records', "
            "lines=True)`"
        )
    if not judged or not (chosen or len(answers) > 1 or "accept" not in answers):
        return None
    which = "; ".join(f"{name}: {n:,}" for name, n in answers.most_common())
    rest = "frame = frame[frame['answer'] == 'accept']"
    label = "; frame['label'] = frame['accept'].str[0]; frame = frame[['text', 'label']]" if chosen else ""
    said = ", and what was chosen in the field accept" if chosen else ""
    return (
        f"it holds an annotator's judgement of each label in the field answer ({which}){said}, as Prodigy exports it; keep "
        f"what was accepted, with pandas as `frame = pandas.read_json({str(path)!r}, lines=True); {rest}{label}; "
        "frame.to_json('accepted.jsonl', orient='records', lines=True)`"
    )


def _holds_conversations(values: Sequence[Any]) -> bool:
    """Whether a field holds conversations: most of its values are, and all are lists, or the texts of lists."""
    talks = sum(map(is_conversation, values))
    return 2 * talks > len(values) and all(isinstance(listed(value), list) for value in values)


def is_conversation(value: object) -> bool:
    """Whether a value is a list of messages, or the text of one."""
    value = listed(value)
    if not isinstance(value, list) or not value:
        return False
    turns = [set(turn) if isinstance(turn, dict) else set() for turn in value]
    return all({"from", "value"} <= keys or ("role" in keys and keys & {"content", "tool_calls"}) for keys in turns)


def _preferences(path: Path, fields: Fields, talks: Sequence[str]) -> str:
    """What to do with answers of which one was chosen: qkv doesn't learn from preferences."""
    said = "its rows are preferences, a chosen and a rejected answer, and no recipe learns from these (as DPO does)"
    if "chosen" in talks and "prompt" in talks:
        return f"{said}; to learn the chosen answers, join each prompt and its chosen messages in one list `messages`"
    place = setting("data.path", path)
    if "chosen" in talks:
        command = ["chat", place, "data.messages=chosen"]
    elif "prompt" in fields:
        command = ["lm", "data.kind=jsonl", place, "data.prompt=prompt", "data.answer=chosen"]
    else:
        command = ["lm", "data.kind=jsonl", place, "data.text=chosen"]
    return f"{said}; `{shlex.join(['qkv', 'train', *command])}` learns the chosen answers"


def _questions(path: Path, fields: Fields, count: int) -> Guess | str:
    placed = [value for value in fields.get("answers", ()) if isinstance(value, dict | list)]
    objects = [one for value in placed for one in (value if isinstance(value, list) else [value])]
    inside = bool(placed) and all(isinstance(one, dict) and "answer_start" in one for one in objects)
    if "start" not in fields and not inside:
        return (
            "it has questions on texts with their answers, and no field `start` with the number of the character "
            "of the text at which each answer begins"
        )
    settings = ("data.kind=questions", setting("data.path", path))
    return Guess("answer", settings, (f"{counted(count, 'question')} about texts, with their answers",))


def _candidates(path: Path, fields: Fields, count: int) -> Guess | str | None:
    lists = [name for name, values in fields.items() if values and all(isinstance(value, list) for value in values)]
    if not lists or "answer" not in fields:
        return None
    first = next((value[0] for value in fields[lists[0]] if value), None)
    if isinstance(first, dict | list):
        kind = "objects" if isinstance(first, dict) else "lists"
        return f"the candidates in {brief(lists[0])} are {kind}; write a list of their texts"
    text = next((name for name in fields if name not in (lists[0], "answer")), "text")
    fields_ = setting("data.text", text), setting("data.choices", [lists[0]])
    settings = ("data.kind=choices", setting("data.path", path), *fields_)
    return Guess("choose", settings, (f"{counted(count, 'line')}; {brief(lists[0])} holds candidates",))


def _prompts(path: Path, fields: Fields, count: int) -> Guess | None:
    """Texts after a prompt, if there is nothing else."""
    answer = next((name for name in ("completion", "response") if name in fields), None)
    if answer is None or set(fields) - ASIDE != {"prompt", answer}:
        return None
    if not all(isinstance(value, str) for name in ("prompt", answer) for value in fields[name]):
        return None
    settings = ("data.kind=jsonl", setting("data.path", path), "data.prompt=prompt", f"data.answer={answer}")
    return Guess("lm", settings, (f"{counted(count, 'line')}, each a prompt with its {answer}",))


def types_in(name: str, values: Sequence[tuple[int, Any]], unit: str, settings: Sequence[str]) -> Iterator[str]:
    """Notes on the JSON types of a field's values with their lines: those that training can't read, by what the field is
    in the `settings`, and labels of several types."""
    text = {setting("data.text", name), setting("data.pair", name)} & set(settings)
    label, score = (setting(f"data.{field}", name) in settings for field in ("label", "score"))
    wrong = [(at, value) for at, value in values if not is_missing(value) and not _is_read(value, bool(text), label)]
    if wrong and (text or label or score):
        listed = ", ".join(f"{brief(value)[:40]} ({unit} {at:,})" for at, value in wrong[:3])
        listed += ", …" if wrong[3:] else ""
        kind, fate = "texts", "their rows are skipped"
        if label or score:
            kind = "texts or whole numbers" if label else "numbers"
            fate = "training refuses them: correct them, or skip their rows with task.on_error=skip"
        no = "is no" if len(wrong) == 1 else "are no"
        yield f"{counted(len(wrong), 'value')} of {name} that were looked at {no} {kind}: {listed}; {fate}"
    elif wrong and all(isinstance(value, list | dict) for _, value in wrong):
        yield f"{counted(len(wrong), 'value')} of {name} are lists or objects, which are not read"
    kinds = Counter(_TYPES[type(value)] for _, value in values if type(value) in _TYPES and not is_missing(value))
    if label and len(kinds) > 1:
        listed = ", ".join(f"{kind} ({n:,})" for kind, n in kinds.most_common())
        yield f'{name} holds {listed}: 1, "1" and 1.0 are one class, and so are true and "true"'


def _is_read(value: Any, text: bool, label: bool) -> bool:
    """Whether training reads a value of a text, a label or, by default, a number."""
    if text:
        return isinstance(value, str)
    return not isinstance(value, list | dict) and not (label and isinstance(value, float) and not value.is_integer())


def of_one_value(path: Path) -> str | None:
    """What is in a file with one JSON value that is no list of records; None if it can't be told."""
    try:
        value = json_file(path)
    except ValueError:
        return None
    parts = value if isinstance(value, dict) else {}
    for name, part in parts.items():
        if isinstance(part, list) and part and all(isinstance(record, dict) for record in part):
            return f"its records are in the list {brief(name)} of one object; save that list as a file"
    sizes = {len(part) if isinstance(part, dict | list) else 0 for part in parts.values()}
    if (len(sizes) == 1 and sizes.pop() > 1) or {"columns", "data"} <= set(parts):
        return "it holds columns; write records, with pandas as `frame.to_json(PATH, orient='records', lines=True)`"
    return "it is JSON in no format that is known; write one object per line (.jsonl)"
