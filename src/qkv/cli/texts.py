"""Read texts from the command line, from a file or from standard input, for the commands that use a run.

A blank text is not given to the model; its output is a blank line, or in JSON an object whose answer is null or empty. A
line of standard input that can't be processed, such as one longer than the model's context, has the same output and a
warning. Lines of input and output therefore correspond, and so do rows of a file and of the table that `--out` writes.
"""

from __future__ import annotations

import gc
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .say import echo, progress_bar, visible, warn

if TYPE_CHECKING:
    from ..runs.inference.run import Run
    from ..runs.inference.tables.read import FileTable

CHUNK = 512  # lines read before they are processed: enough to batch by length, and few enough for a short delay

QUOTED = 40  # characters of a text shown in a message

T = TypeVar("T")


def load_run(run: str | Path, command: str, device: str) -> Run:
    """Load the run that a command uses. Raises ValueError naming the right command for a run of another kind."""
    with uncollected():
        from ..runs.inference.run import load
        from ..runs.inference.uses import check

        loaded = load(run, device=device)
        check(loaded, command)
    return loaded


def load_runs(
    run: str | Path,
    texts: Sequence[str] | None,
    command: str,
    device: str,
    weights: str | None = None,
    mode: str | None = None,
) -> tuple[Run, list[str] | None]:
    """Load a run. If the first texts name further runs, load the ensemble of all of them.

    Also returns the remaining texts, or None if there are none. `weights` and `mode` are the ensemble's.
    """
    more = list(itertools.takewhile(names_a_run, texts or ()))
    check_several(1 + len(more), weights, mode)
    loaded, rest = load_run(run, command, device), list(texts or ())[len(more) :] or None
    if not more:
        return loaded, rest
    return ensemble_of([loaded, *(load_run(one, command, device) for one in more)], weights, mode), rest


def check_several(count: int, weights: str | None, mode: str | None) -> None:
    """Raise ValueError for the options of an ensemble without one."""
    if count == 1 and (weights is not None or mode is not None):
        option = "--ensemble-mode" if weights is None else "--ensemble-weights"
        raise ValueError(f"{option} is for several runs, and there is one; name them one after another: RUN RUN")


def ensemble_of(runs: Sequence[Run], weights: str | None, mode: str | None) -> Run:
    """The ensemble of several runs, with the options of the command line; says on standard error that it is one."""
    from ..runs.inference.ensemble import ensemble

    options: dict[str, Any] = {} if mode is None else {"mode": mode}
    joined = ensemble(runs, None if weights is None else _numbers(weights), **options)
    means = "log-probabilities" if mode == "log_linear" else "probabilities"
    echo(f"The {len(runs)} runs predict together, by the mean of their {means}.", err=True)
    return joined


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--ensemble-weights are numbers with commas between them, such as 2,1,1, not {text!r}"
        ) from None


def names_a_run(text: str) -> bool:
    """Whether a text is the path of a run or another model: a directory with a configuration or a recipe, or a GGUF file."""
    path = existing_path(text)
    if path is None:
        return False
    from ..io.directories.layout import CONFIG, RECIPE
    from ..io.hub.gguf.container import is_gguf

    return is_gguf(path) if path.is_file() else any((path / name).is_file() for name in (CONFIG, RECIPE))


def small_english() -> str:
    """The name of the model that comes with the package, for a command without a run; says so on standard error."""
    from ..io.directories.locate import SMALL_ENGLISH

    echo(f"The model is {SMALL_ENGLISH}, which comes with qkv: a small language model of English books.", err=True)
    return SMALL_ENGLISH


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection while importing and loading, because what is loaded stays alive.

    Afterwards, `gc.freeze` excludes the loaded objects from later collections.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.freeze()
            gc.enable()


@dataclass
class Asked:
    """What a command was asked: texts (None for standard input), or the rows of a file, and the table to write."""

    texts: Sequence[str] | None
    table: FileTable | None = None
    out: Path | None = None

    def answer(
        self,
        answer: Callable[[list[str]], Iterable[T]],
        show: Callable[[str, T | None], None],
        result: Callable[[T], Mapping[str, Any]],
        *,
        at_once: int = CHUNK,
        noun: str = "text",
    ) -> None:
        """Show each text with its answer, or write the answers into the table of `--out`, in the columns of `result`."""
        if self.out is None:
            for text, one in each(self.texts, answer, at_once, noun, self.table):
                show(text, one)
            return
        from ..core.spec import counted
        from ..runs.inference.tables.read import FileTable
        from ..runs.inference.tables.write import write_table

        read, results = list[str](), list[Mapping[str, Any] | None]()
        with progress_bar(f"writing {self.out.name}") as progress:
            for text, one in each(self.texts, answer, at_once, noun, self.table):
                read.append(text)
                results.append(None if one is None else result(one))
                progress(len(results) / max(1, len((self.table.inputs if self.table else self.texts) or read)))
        if not any(results):
            raise ValueError(f"none of the {len(results):,} inputs has a result, so {self.out} is not written")
        rows = [{noun: text} for text in read]
        table = self.table or FileTable(Path(), (noun,), rows, read, read, (noun,))
        for note in write_table(self.out, table, results):
            echo(f"{note}.", err=True)
        without = sum(one is None for one in results)
        echo(
            f"Wrote {counted(len(results), 'row')} to {self.out}"
            + (f"; {without:,} blank or refused, with empty cells" if without else "")
        )


def _names_a_file(text: str) -> bool:
    """Whether a text is a single word that ends like the name of a data file, such as in.csv or in.xlsx."""
    if any(map(str.isspace, text)) or not 0 < len(text) < 256:
        return False
    from ..runs.inference.tables.read import names_a_file

    return names_a_file(Path(text))


def asked(
    texts: Sequence[str] | None,
    run: Run,
    command: str,
    out: Path | None = None,
    columns: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Asked:
    """What a command was asked: a file with a table's name is read as one, and so is a folder for a run that reads files.

    Raises ValueError for options that don't fit, and before anything is computed if `out` can't be written.
    """
    existing = [path for text in texts or () if (path := existing_path(text)) is not None]
    if not (existing or out or columns or overwrite or any(map(_names_a_file, texts or ()))):
        return Asked(texts)  # without importing what reads tables
    from ..core.spec import brief
    from ..runs.inference.loaded import has_towers
    from ..runs.inference.tables import read as tables
    from ..runs.inference.tables.columns import files_of, reads_files
    from ..runs.inference.tables.write import check_columns, check_output

    towers = has_towers(run)
    if missing := [text for text in texts or () if existing_path(text) is None and _names_a_file(text)]:
        raise ValueError(
            f"there is no file {brief(missing[0])}; correct the name, or give a text of this form on standard input"
        )
    if out is not None:
        check_output(out, existing, overwrite)
    elif overwrite:
        raise ValueError("--overwrite replaces the file of --out; give --out too")
    files, table = reads_files(run, command) or towers, None
    own = files_of(run)[0] if files else frozenset()
    read = [path for path in existing if path.is_file() and tables.is_table(path) and not tables.ends_in(path, own)]
    folders = [path for path in existing if path.is_dir()] if files else []
    if (read or folders) and len(texts or ()) > 1:
        raise ValueError(
            f"{(read or folders)[0]} is read whole; give one file or folder at a time, without other inputs"
        )
    if read:
        table = tables.read_table(read[0], run, command, columns or ())
    elif folders:
        table = tables.read_folder(folders[0], run)
    elif columns:
        if run.trained_on is not None and run.trained_on.kind == "forecast":
            raise ValueError("--column is for tables of inputs; choose a series' columns by --data columns=[NAME,…]")
        raise ValueError("--column names a column of a table; give a file such as in.csv too")
    elif not files and existing and not _reads_pieces(run, command) and _lines_of(existing, texts or ()):
        table = tables.read_lines(existing[0])
    for note in table.notes if table else ():
        echo(f"Read: {note}.", err=True)
    if table is not None and out is not None:
        check_columns(out, table)
    return Asked(None if table else texts, table, out)


def _reads_pieces(run: Run, command: str) -> bool:
    """Whether a command reads files that the texts name: of music, or pictures with questions about them."""
    music = run.trained_on is not None and run.trained_on.kind == "music"
    return command == "predict" and (music or bool(run.media))


def existing_path(text: str) -> Path | None:
    """The file or folder whose name a text is; None if there is none."""
    try:
        path = Path(text).expanduser()
        return path if text.strip() and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # no text that a name can be
        return None


def _lines_of(existing: Sequence[Path], texts: Sequence[str]) -> bool:
    """Whether to read a file of unknown kind as lines of text, rather than its name as a text: asked in a terminal.

    Raises ValueError for a file that holds no text.
    """
    path = existing[0]
    if path.is_file():
        _check_text(path)
    if path.is_file() and len(texts) == 1 and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        import typer

        return typer.confirm(visible(f"There is a file {path}. Read its lines as texts?"), default=True, err=True)
    note_files(texts, f"; to read its lines: < {path}" if path.is_file() else "")
    return False


def _check_text(path: Path) -> None:
    """Raise ValueError for a file whose content or name is that of another kind than text, unless it is empty."""
    from ..data.file_kinds import markup, other_kind, other_table, without_marks
    from ..data.files.compressed import open_bytes
    from ..runs.inference.tables.read import OTHER_TABLES

    named = path.suffix.lower() in OTHER_TABLES
    if not named and path.stat().st_size == 0:
        return
    content = open_bytes(path)
    kind = (other_table if named else other_kind)(path, content)
    if kind is None and (marks := markup(path, content)) == "a Jupyter notebook":
        kind = f"{path.name} is {marks}; {without_marks(path, marks)}"
    if kind or named:
        raise ValueError(
            kind or f"{path} is a file that is not read here; save it as .csv, .tsv, .jsonl, .parquet or .txt"
        )


def note_files(texts: Sequence[str], advice: str = "") -> None:
    """Say which of the texts are also names of files, of which nothing is read."""
    for text in texts:
        if (path := existing_path(text)) is not None:
            kind = "folder" if path.is_dir() else "file"
            echo(f"Note: {text!r} is read as a text, though there is a {kind} of that name{advice}.", err=True)


def read(texts: Sequence[str] | None, at_once: int = CHUNK) -> Iterator[list[str]]:
    """Yield the texts, or the lines of standard input, in chunks. Raises ValueError naming the line for invalid UTF-8."""
    if texts:
        yield from chunks(texts, 1) if at_once == 1 else [list(texts)]
        return
    if sys.stdin is None:
        raise ValueError("there is no text, and standard input is closed; give texts")
    if sys.stdin.isatty():
        echo("Type a line and press Enter; Ctrl-D ends.", err=True)
        at_once = 1
    yield from chunks(_lines(), at_once)


def each(
    texts: Sequence[str] | None,
    answer: Callable[[list[str]], Iterable[T]],
    at_once: int = CHUNK,
    noun: str = "text",
    table: FileTable | None = None,
) -> Iterator[tuple[str, T | None]]:
    """Yield each text with its answer, which is None for a blank text. `noun` is what a text is: a "file", if it names one.

    Raises ValueError naming the first of the given texts that can't be answered. A line of standard input, or a row of
    `table`, that can't be answered has a warning and the answer None. If none can be answered, raises ValueError in the end.
    """
    before = answered = refused = 0
    for chunk in read(texts, at_once) if table is None else chunks(table.inputs, at_once):
        answers, errors = _answer({i: text for i, text in enumerate(chunk) if text.strip()}, answer)
        for i, error in errors.items():
            if texts:
                raise ValueError(f"{noun} {before + i + 1}, {_quoted(chunk[i])}: {_alone(error)}")
            place = f"line {before + i + 1}" if table is None else table.where[before + i]
            warn(f"{place}, {_quoted(chunk[i])}, is not answered: {_alone(error)}")
        for i, text in enumerate(chunk):
            yield text, answers.get(i)
        before, answered, refused = before + len(chunk), answered + len(answers), refused + len(errors)
    if refused and not answered:
        rows = "line of standard input" if table is None else "row"
        raise ValueError(f"no {rows} could be answered; the warnings say why")


def _answer(
    texts: dict[int, str], answer: Callable[[list[str]], Iterable[T]]
) -> tuple[dict[int, T], dict[int, ValueError]]:
    """The answers to texts, and the errors of texts that have none, by index.

    Texts are answered together. If this fails, they are halved until the texts that can't be answered are found. Raises
    ValueError for a mistake that is not in one of the texts: all fail with the same message, or only all together.
    """
    answers, errors, first_error = dict[int, T](), dict[int, ValueError](), None
    groups = [list(texts)] if texts else []
    while groups:
        group = groups.pop(0)
        try:
            answers |= zip(group, answer([texts[i] for i in group]), strict=True)
        except ValueError as error:
            first_error = first_error or error
            half = len(group) // 2
            if half:
                groups[:0] = [group[:half], group[half:]]
            else:
                errors[group[0]] = error
    if len(errors) == len(texts) > 1 and len({str(error) for error in errors.values()}) == 1:
        raise next(iter(errors.values()))
    if first_error is not None and not errors:
        raise first_error
    return answers, errors


def _alone(error: ValueError) -> str:
    """The error message for a single text, without that text's index."""
    return re.sub(r"^(text 1|prompt 0) ", "it ", str(error))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}…")


def warn_of_settings(texts: Sequence[str] | None, advice: str) -> None:
    """Warn about texts that look like settings, `KEY=VALUE`."""
    for text in texts or ():
        match = re.match(r"([a-z_]+)((?:\.[a-z_*0-9]+)*)=\S", text)
        if match is None:
            continue
        from ..generation.settings import Generation
        from ..runs.recipes.recipe import Recipe

        if match[1] in Recipe.model_fields if match[2] else match[1] in Generation.model_fields:
            warn(f"{text!r} is read as a text, though it looks like a setting; {advice}")


def one_line(text: str) -> str:
    """A text with spaces for its line ends, as a line of output."""
    return " ".join(text.splitlines())


def dumps(value: object) -> str:
    """A value as one line of JSON."""
    from ..core.json_files import dumps as plain

    return plain(value)


def _lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"standard input, line {number} is not UTF-8 (byte {error.start})") from None


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk
