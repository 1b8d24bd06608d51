"""CoNLL and CoNLL-U files: one word per line with its tags in columns, and an empty line after each sentence."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from ...core.spec import counted
from ..files.compressed import suffix_of
from ..files.lines import Lines
from ..files.text_files import FilePerSplit
from ..source import Example, Skipped, Split, Table

_DOCUMENT = "-DOCSTART-"
_FORM, _UPOS = 1, 3  # columns of CoNLL-U
_FIRST = 1000  # sentences from which comments are told from words


class Columns(FilePerSplit, kind="columns"):
    """Sentences of words and tags. Columns are separated by tabs, or by spaces if a line has no tab.

    word, tag: the columns, from 0; −1 is the last. By default the first and the last; of a `.conllu` file (plain or
               compressed) the second and the fourth, words and their universal parts of speech.

    All lines of a sentence have the same number of columns. Lines above it that begin with `#` and have another number are
    comments. So are lines such as `# id 1` that have the same number, if half of the first 1,000 sentences begin with `#`,
    and no word in them has the tag that the line would have. In CoNLL-U, all lines that begin with `#` are comments;
    multiword tokens ("3-4") and empty nodes ("5.1") are skipped.
    """

    expects: ClassVar[str] = "a file with a word and its tag on each line"

    word: int | None = None
    tag: int | None = None

    def open(self, split: Split) -> Table:
        return _Sentences(self.lines(self.paths(split)[0]), self.word, self.tag)


class _Sentences:
    """The sentences of a file: its blocks of lines between empty lines."""

    def __init__(self, lines: Lines, word: int | None, tag: int | None) -> None:
        self._lines = lines
        self._blocks = lines.blocks()
        self._universal = suffix_of(lines.path) == ".conllu"
        self._word = word if word is not None else _FORM if self._universal else 0
        self._tag = tag if tag is not None else _UPOS if self._universal else -1

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, i: int) -> Example | Skipped:
        start = int(self._blocks[i][0])
        words, tags, width = [], [], 0
        lines = self._block(i)
        comments = 0 if self._universal else self._comments(lines)
        for n, line in enumerate(lines[comments:], start + comments):
            cells = _cells(line)
            if self._universal and (line.startswith("#") or (cells and not cells[0].isdigit())):
                continue
            words.append(self._cell(cells, self._word, n))
            tags.append(self._cell(cells, self._tag, n))
            if width and len(cells) != width:
                raise ValueError(
                    f"{self._lines.where(n)} has {counted(len(cells), 'column')}, and the lines before it in the sentence "
                    f"have {width}: {' '.join(cells)[:60]!r}; mend it, or skip such sentences with data.on_error=skip"
                )
            width = len(cells)
        if not words or words == [_DOCUMENT]:
            return Skipped("without words")
        return {"text": " ".join(words), "words": words, "tags": tags, "where": self._lines.where(start)}

    def _block(self, i: int) -> list[str]:
        return [line.removesuffix("\r") for line in self._lines.text(*self._blocks[i].tolist()).split("\n")]

    def _comments(self, lines: list[str]) -> int:
        """Return how many lines above a sentence are comments."""
        width = len(_cells(lines[-1]))
        for i, line in enumerate(lines):
            cells = _cells(line)
            if not line.startswith("#") or (len(cells) == width and not self._is_comment(cells, lines[i + 1 :])):
                return i
        return len(lines)

    def _is_comment(self, cells: list[str], below: list[str]) -> bool:
        """Whether a line with as many columns as the words is a comment, judging by the tags of other sentences."""
        known = self._tags
        return bool(below) and known is not None and len(cells) > abs(self._tag) and cells[self._tag] not in known

    @cached_property
    def _tags(self) -> set[str] | None:
        """The tags of words in the first sentences. None if there is one sentence, or if fewer than half begin with `#`."""
        blocks = [self._block(i) for i in range(min(len(self), _FIRST))]
        if len(blocks) < 2 or 2 * sum(block[0].startswith("#") for block in blocks) < len(blocks):
            return None
        words = (_cells(line) for block in blocks for line in block if not line.startswith("#"))
        return {cells[self._tag] for cells in words if len(cells) > abs(self._tag)}

    def _cell(self, cells: list[str], column: int, line: int) -> str:
        needed = (
            column + 1 if column >= 0 else max(-column, 2)
        )  # with a single column, the last would be the word itself
        cell = cells[column].strip(" \r") if len(cells) >= needed else ""
        if not cell.strip():
            raise ValueError(
                f"{self._lines.where(line)}: a word and its tag are columns {self._word} and {self._tag} here, and the line "
                f"has {len(cells)}: {' '.join(cells)[:60]!r}; see `word` and `tag`"
            )
        return cell


def _cells(line: str) -> list[str]:
    """The cells of a line. Only ASCII spaces are between them: French and Japanese words hold others, as `10\u00a0000`."""
    if not line.strip():
        return []
    return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]
