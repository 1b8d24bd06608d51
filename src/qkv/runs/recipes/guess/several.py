"""Guess a recipe for several files: two parallel texts, or a file (or two) for each split."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ....core.spec import counted
from ....data.file_kinds import other_kind
from ....data.files.compressed import open_bytes, suffix_of
from ....data.files.lines import Lines
from ....data.files.parquet import SUFFIX
from ....data.files.records import FORMATS, RecordFormat
from ....data.media.image_files import ARCHIVES
from ....data.source import SPLITS, Split, split_of
from .files import FASTA, WHAT_FASTA, encoding_of, in_another, is_text, of_file
from .result import Guess, setting

HOW = (
    "give two text files of which line n of one translates line n of the other, or a file for each of train, validation "
    "and test"
)
_KINDS = ("pairs", "labelled", "choices", "questions", "columns", "jsonl", "text")  # sources with a file for each split


def of_files(paths: Sequence[Path], how: RecordFormat) -> Guess | str:
    """Guess a recipe for files, in the order given: the source first. Or return what was seen if nothing fits."""
    for path in paths:
        if suffix_of(path) in FASTA:
            return f"{path.name} is {WHAT_FASTA}"
        if path.is_dir() or path.name.lower().endswith(ARCHIVES):
            return f"{path.name} is a folder or an archive, which is read alone; or {HOW}"
    if len({path.resolve() for path in paths}) < len(paths):
        return f"a file is given twice; {HOW}"
    splits = [split_of(path) for path in paths]
    if None in splits or len(set(splits)) == 1:
        splits = ["train"] * len(paths)
    files = {split: [path for path, one in zip(paths, splits, strict=True) if one == split] for split in SPLITS}
    files = {split: group for split, group in files.items() if group}
    sizes = {len(group) for group in files.values()}
    try:
        encoding = _encoding(paths, how)
    except ValueError as error:
        return str(error)
    if "train" not in files:
        return f"none of {_listed(paths)} is for training by its name"
    if sizes == {2} and not any(suffix_of(path) in (*FORMATS, ".json") for path in paths):
        return _parallel(files, encoding, encoding != how.encoding)
    return (
        _per_split(files, how, encoding)
        if sizes == {1}
        else f"{_listed(paths)} are {counted(len(paths), 'file')}; {HOW}"
    )


def _encoding(paths: Sequence[Path], how: RecordFormat) -> str:
    """The encoding of all files. Raises ValueError if they differ, or if it can't be told."""
    if how.encoding != "utf-8":
        return how.encoding
    found: dict[str, Path] = {}
    for path in paths:
        if suffix_of(path) == SUFFIX:
            continue
        if (kind := other_kind(path, open_bytes(path))) is not None:
            raise ValueError(kind)
        try:
            found.setdefault(encoding_of(path), path)
        except ValueError as error:
            if is_text(path):
                raise ValueError(f"{path.name}: {error}") from None
    found.pop("ascii", None)
    if set(found) == {"latin-1", "cp1252"}:  # which has all letters of Latin-1
        return "cp1252"
    if len(found) > 1:
        (first, one), (second, other) = list(found.items())[:2]
        raise ValueError(
            f"{one.name} is in {first}, and {other.name} in {second}; save all in UTF-8, or give data.encoding=NAME if one "
            "encoding is right for all"
        )
    return next(iter(found), "utf-8")


def _parallel(files: dict[Split, list[Path]], encoding: str, guessed: bool) -> Guess | str:
    """Translation between two files of each split."""
    endings = [suffix_of(path) for path in files["train"]]
    settings, seen = [], []
    for split, group in files.items():
        if endings[0] != endings[1] and [suffix_of(path) for path in group] == endings[::-1]:
            group = group[::-1]
        sizes = [len(Lines(path, encoding, False)) for path in group]
        if sizes[0] != sizes[1]:
            said = " and ".join(f"{path.name} has {counted(n, 'line')}" for path, n in zip(group, sizes, strict=True))
            return f"{said}, and line n of one must translate line n of the other; {HOW}"
        prefix = "" if split == "train" else f"{split}_"
        settings += [setting(f"data.{prefix}{side}", p) for side, p in zip(("source", "target"), group, strict=True)]
        seen.append(f"{counted(sizes[0], 'line')} each in {group[0].name} and {group[1].name}, for {split}")
    source, target = (path.name for path in files["train"])
    swapped = shlex.join(["qkv", "train", *(str(path) for group in files.values() for path in reversed(group))])
    seen.append(f"{source} is translated to {target} (the other direction: {swapped})")
    if guessed:
        settings.append(f"data.encoding={encoding}")
        seen.append(f"they are not UTF-8 and are read as {encoding} (data.encoding)")
    return Guess("translate", tuple(settings), tuple(seen))


def _per_split(files: dict[Split, list[Path]], how: RecordFormat, encoding: str) -> Guess | str:
    """What is guessed for the training file, with the files of the other splits."""
    found = of_file(files["train"][0], replace(how, encoding=encoding))
    if encoding != how.encoding:
        its = (path for group in files.values() for path in group if encoding_of(path) == encoding)
        found = in_another(next(its, files["train"][0]), encoding, found)
    if isinstance(found, str):
        return f"{files['train'][0].name}: {found}"
    kind = next((one.partition("=")[2] for one in found.settings if one.startswith("data.kind=")), None)
    if kind not in (None, *_KINDS):
        return f"{files['train'][0].name} is data of the kind {kind}, which is read from one file or folder"
    others = {split: group[0] for split, group in files.items() if split != "train"}
    more = tuple(setting(f"data.{split}_path", path) for split, path in others.items())
    seen = tuple(f"{path.name} is for {split}" for split, path in others.items())
    return replace(found, settings=(*found.settings, *more), seen=(*found.seen, *seen))


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths[:6]) + (" …" if len(paths) > 6 else "")
