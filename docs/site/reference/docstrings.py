"""Docstrings as Markdown: paragraphs, `name: text` lists, indented code, and characters that Markdown would read."""

from __future__ import annotations

import inspect
import re
import textwrap

_ENTRY = re.compile(r"^([a-z_][\w, *]*):\s+(\S.*)$")
_CODE = re.compile(r"(``.+?``|`[^`]+`|\*\*[A-Z][^*]+\*\*)", re.DOTALL)  # code, and what is bold
_MARKUP = re.compile(r"[\\*\[\]]|(?<!\w)_(?=\S)|(?<=\S)_(?!\w)")


def markdown(doc: str | None) -> str:
    """A docstring as Markdown."""
    text = inspect.cleandoc(doc or "")
    return "\n\n".join(_block(block) for block in re.split(r"\n\s*\n", text) if block.strip())


def first(doc: str | None) -> str:
    """The first sentence of a docstring, as Markdown on one line; `et al.`, `eq.` and `e.g.` end none."""
    paragraph = " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<!al)(?<!eq)(?<!\.g)(?<!i\.e)\.(?= [A-Z`\"])", paragraph, maxsplit=1)[0].rstrip(".:")
    return f"{escaped(sentence)}." if sentence else ""


def entries(doc: str | None) -> dict[str, str]:
    """The `name: text` entries of a docstring: what it says of each field or parameter, as Markdown on one line."""
    found: dict[str, str] = {}
    for block in re.split(r"\n\s*\n", inspect.cleandoc(doc or "")):
        for names, text in _entries(block.splitlines()):
            found |= {name.strip(): escaped(text) for name in names.split(",") if name.strip()}
    return found


def escaped(text: str) -> str:
    """Text whose characters stand for themselves; spans of code stay code, and bold sentences bold."""
    parts = _CODE.split(text)
    return "".join(
        part if i % 2 else _MARKUP.sub(r"\\\g<0>", part).replace("<", "&lt;") for i, part in enumerate(parts)
    )


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; empty without rows."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(map(cell, line)) + " |\n" for line in lines) if rows else ""


def _block(block: str) -> str:
    lines = block.splitlines()
    if all(line.startswith("    ") for line in lines if line):
        return "```text\n" + inspect.cleandoc("\n" + block) + "\n```"
    if lines[0] == "Args:":
        return f"Arguments:\n\n{_block(textwrap.dedent(chr(10).join(lines[1:])))}"
    if _ENTRY.match(lines[0]):
        return "\n".join(f"- **{escaped(name)}**: {escaped(text)}" for name, text in _entries(lines))
    if re.match(r"[-*] |\d+\. ", lines[0]):
        return "\n".join(line[:2] + escaped(line[2:]) for line in lines)
    at = next((i for i, line in enumerate(lines) if i and _ENTRY.match(line)), None)
    if at is not None and _is_list(lines[at:]):
        return f"{escaped(' '.join(lines[:at]))}\n\n{_block(chr(10).join(lines[at:]))}"
    return escaped(" ".join(line.strip() for line in lines))


def _is_list(lines: list[str]) -> bool:
    return all(_ENTRY.match(line) or line.startswith("  ") for line in lines)


def _entries(lines: list[str]) -> list[tuple[str, str]]:
    """(names, text) of each entry of a block; lines that are indented continue the one before."""
    found: list[tuple[str, str]] = []
    if not lines or not _ENTRY.match(lines[0]):
        at = next((i for i, line in enumerate(lines) if i and _ENTRY.match(line)), None)
        return _entries(lines[at:]) if at is not None and _is_list(lines[at:]) else []
    for line in lines:
        match = _ENTRY.match(line)
        if match:
            found.append((match[1], match[2].strip()))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found
