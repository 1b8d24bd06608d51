"""Image folders: files in a folder, an archive, or a table that names them, with the class and split of each."""

from __future__ import annotations

import lzma
import mmap
import os
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

from ...core.spec import brief, counted, nearest
from ..classes import missing_label
from ..files.compressed import PACKED, open_tar
from ..files.csv_tsv import Cells, no_record
from ..files.inside import inside
from ..files.records import Column, RecordFormat
from ..source import SPLIT_NAMES, Skipped, Split

# The formats that Pillow reads by itself, see `images.NOT_READ`. Asking Pillow would import forty modules.
_FORMATS = """
apng avif avifs blp bmp bw cur dcx dds dib fit fits flc fli ftc ftu gbr gif icb icns ico iim im j2c j2k jfif jp2 jpc
jpe jpeg jpf jpg jpx msp pbm pcd pcx pfm pgm png pnm ppm psd pxr qoi ras rgb rgba sgi tga tif tiff vda vst webp xbm
xpm
"""
SUFFIXES = frozenset(f".{name}" for name in _FORMATS.split())
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.zst", ".tzst", ".zip")
TABLES = tuple(f"{form}{packed}" for form in (".csv", ".tsv") for packed in ("", *PACKED))
MOST_BYTES = 256 << 20  # in one file
_MOST_UNPACKED = 1 << 30  # bytes in an archive that has to be read into memory

_INSPECTED = 1000  # rows that show whether the first has names
AS_DETECTED = RecordFormat()  # how a table is read


class Files(Hashable, Protocol):
    """Files by index, each with its name and its class, if known. `notes` are sentences for the user."""

    names: Sequence[str]
    notes: tuple[str, ...]

    def label(self, i: int) -> str | None:
        """The class; None if there is none, or a `Skipped` with the reason if it is missing in a table."""

    def split(self, i: int) -> Split | None:
        """The split of a file, if its folder names one."""

    def read(self, i: int) -> bytes | Skipped: ...


@lru_cache(maxsize=32)
def open_image_files(
    path: Path,
    stamp: tuple[int, int],
    columns: tuple[Column | None, Column | None] = (None, None),
    suffixes: frozenset[str] = SUFFIXES,
    folder: Path | None = None,
    how: RecordFormat = AS_DETECTED,
) -> Files:
    """Open the images (or files with other `suffixes`) of a folder, archive or table. `stamp`, its size and time, renews the
    cached result. Files that a table names lie in `folder`, by default that of the table; `how` is how it is read.

    Raises ValueError if it is none of these, or without images.
    """
    name, what = path.name.lower(), "picture" if suffixes == SUFFIXES else "file"
    if path.is_dir():
        files: Files = Folder(path, suffixes)
    elif name.endswith(TABLES):
        files = Listed(path, *columns, folder, how, suffixes)
    elif name.endswith(".zip"):
        files = Zip(path, suffixes)
    elif name.endswith(ARCHIVES):
        files = _open_tar(path, suffixes)
    else:
        problem = "there is no folder or file" if not path.exists() else f"{what}s are not read from"
        raise ValueError(
            f"{problem} {brief(path)}; give a folder, a table ({TABLES[0]}) or an archive ({ARCHIVES[0]} …)"
        )
    if not files.names:
        endings = ", ".join(sorted(suffixes)) if what == "file" else ".jpg, .png or another that Pillow reads"
        raise ValueError(f"there is no {what} in {brief(path)}; their names end in {endings}")
    return files


def stamp_of(path: Path) -> tuple[int, int]:
    """Size and time of a file or folder; zeros if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def is_wanted(name: str, suffixes: frozenset[str]) -> bool:
    """Whether a file name has one of the suffixes; hidden files are ignored."""
    path = PurePosixPath(name)
    return path.suffix.lower() in suffixes and not path.name.startswith(".")


# -- in folders and archives -------------------------------------------------------------------------------------------


class Placed:
    """Files in folders named after their classes, `class/name.jpg`, perhaps below `train`, `validation` or `test`.

    A folder is a split if it has the name of one and contains folders, or if all folders with images have such names.
    If several folders have the same name, such as `a/1` and `b/1`, the classes are named by their whole paths.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self.names = names
        self._folders = [PurePosixPath(name).parts[:-1] for name in names]
        holding = {parts[-1].lower() for parts in self._folders if parts}
        self._unsorted = bool(holding) and holding <= SPLIT_NAMES.keys() and len(holding) > 1
        classes = [_class_folders(parts) for parts in self._folders]
        above = list(zip(*(parts[:-1] for parts in classes), strict=False))
        shared = next((n for n, names in enumerate(above) if len(set(names)) > 1), len(above))
        paths = {parts[shared:] for parts in classes if parts}
        clashes = [name for name, n in Counter(path[-1] for path in sorted(paths)).most_common() if n > 1]
        by_path = bool(clashes) and not self._unsorted
        self._classes = [("/".join(parts[shared:]) if by_path else parts[-1]) if parts else None for parts in classes]
        self.notes: tuple[str, ...] = self._beside_splits()
        if by_path:
            alike = [path for path in paths if path[-1] == clashes[0]]
            deepest = min(alike, key=lambda path: (-len(path), path))
            first = "/".join(deepest)
            self.notes += (
                f"{len(clashes):,} folder name(s) occur in several places ({brief(clashes[0])}), so classes are named by "
                f"whole paths ({brief(first)})",
            )

    def _beside_splits(self) -> tuple[str, ...]:
        """A note on files in no folder of a split, if other files are in such folders."""
        splits = [self.split(i) for i in range(len(self.names))]
        loose = [name for name, split in zip(self.names, splits, strict=True) if split is None]
        if not loose or len(loose) == len(splits):
            return ()
        folders = ", ".join(sorted({split for split in splits if split is not None}))
        return (
            f"{counted(len(loose), 'file')} beside the folders of {folders}, such as {brief(loose[0])}, "
            f"{'is' if len(loose) == 1 else 'are'} read for training",
        )

    def label(self, i: int) -> str | None:
        return None if self._unsorted else self._classes[i]

    def split(self, i: int) -> Split | None:
        parts = self._folders[i] if self._unsorted else self._folders[i][:-1]
        return next((SPLIT_NAMES[part.lower()] for part in parts if part.lower() in SPLIT_NAMES), None)


def _class_folders(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The folders of a file without the one that names its split."""
    at = next((i for i, part in enumerate(parts[:-1]) if part.lower() in SPLIT_NAMES), len(parts))
    return parts[:at] + parts[at + 1 :]


class Folder(Placed):
    """The images in a folder and its subfolders."""

    def __init__(self, path: Path, suffixes: frozenset[str]) -> None:
        names = []
        for base, folders, files in os.walk(path):
            folders.sort()
            folder = Path(base).relative_to(path)
            names += [(folder / name).as_posix() for name in sorted(files) if is_wanted(name, suffixes)]
        super().__init__(path, names)

    def read(self, i: int) -> bytes | Skipped:
        return content_of(self.path / self.names[i])


def content_of(path: Path) -> bytes | Skipped:
    """The bytes of a file, or why it is skipped."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return _too_large()
        return path.read_bytes()
    except OSError as error:
        return Skipped("not there" if isinstance(error, FileNotFoundError) else "unreadable")


def _too_large() -> Skipped:
    return Skipped(f"in files of more than {MOST_BYTES >> 20} MiB")


class Zip(Placed):
    """The images in a .zip file."""

    def __init__(self, path: Path, suffixes: frozenset[str]) -> None:
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise ValueError(f"{brief(path)} is not a whole archive ({error})") from None
        self._members = sorted(
            (m for m in self._archive.infolist() if is_wanted(m.filename, suffixes)), key=lambda m: m.filename
        )
        if any(member.flag_bits & 1 for member in self._members):
            raise ValueError(f"{brief(path)} is encrypted; unpack it and give the folder")
        super().__init__(path, [member.filename for member in self._members])

    def read(self, i: int) -> bytes | Skipped:
        member = self._members[i]
        if member.file_size > MOST_BYTES:
            return _too_large()
        try:
            return self._archive.read(member)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
            return Skipped("damaged in the archive")


class Tar(Placed):
    """The images in an uncompressed .tar file, which is memory-mapped."""

    def __init__(self, path: Path, members: Sequence[tarfile.TarInfo]) -> None:
        members = sorted(members, key=lambda member: member.name)
        self._places = [(member.offset_data, member.size) for member in members]
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        super().__init__(path, [member.name for member in members])

    def read(self, i: int) -> bytes | Skipped:
        start, size = self._places[i]
        return _too_large() if size > MOST_BYTES else self._data[start : start + size]


class Unpacked(Placed):
    """The images in a compressed .tar file, unpacked into memory."""

    def __init__(self, path: Path, files: dict[str, bytes]) -> None:
        super().__init__(path, sorted(files))
        self._files = files

    def read(self, i: int) -> bytes:
        return self._files[self.names[i]]


def _open_tar(path: Path, suffixes: frozenset[str]) -> Files:
    try:
        with tarfile.open(path, "r:") as archive:
            return Tar(path, [m for m in archive if m.isfile() and is_wanted(m.name, suffixes)])
    except tarfile.ReadError:  # it is compressed
        return Unpacked(path, unpacked_tar(path, lambda name: is_wanted(name, suffixes)))
    except _BROKEN as error:
        raise ValueError(f"{brief(path)} is not a whole archive ({error})") from None


_BROKEN = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)


def unpacked_tar(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The files of a .tar, compressed or not, whose names are `wanted`. Raises ValueError if it is damaged or too large."""
    files: dict[str, bytes] = {}
    total = 0
    try:
        with open_tar(path) as archive:
            for member in archive:
                if not (member.isfile() and wanted(member.name)):
                    continue
                total += member.size
                if total > _MOST_UNPACKED:
                    raise ValueError(
                        f"{brief(path)} holds more than {_MOST_UNPACKED >> 30} GiB, which are kept in memory; unpack it "
                        "and give the folder"
                    )
                file = archive.extractfile(member)
                files[member.name] = b"" if file is None else file.read()
    except _BROKEN as error:
        raise ValueError(f"{brief(path)} is not a whole archive ({error})") from None
    return files


# -- in a table --------------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    image: str
    label: str | None
    skipped: str = "without a name"


def names_of(cells: Cells, header: bool | None, suffixes: frozenset[str]) -> tuple[str, ...]:
    """The column names in the first row of a table of files, if it has any: a row with the name of a file is data, and one
    without above names of files holds names."""

    def files(row: Sequence[str]) -> bool:
        return any(PurePosixPath(cell.strip()).suffix.lower() in suffixes for cell in row)

    if header is None and (below := list(cells.some(1, min(len(cells), _INSPECTED)))):
        if files(cells[0]):
            return ()
        header = True if sum(map(files, below)) > len(below) / 2 else None
    return cells.names(header)


class Listed:
    """Files listed in a CSV or TSV by paths relative to a folder, by default that of the table.

    Files outside of the folder are not read. Columns are names, or numbers from 0. By default, the column of images is
    `image`, `path`, `file` or `filename`, or else the first, and that of classes `label` or `class`, if there is one; in a
    table without names the second. Whether the first row holds names is detected, as in other tables
    (`RecordFormat.header`); a row with the name of a file is data.
    """

    def __init__(
        self,
        path: Path,
        image: Column | None,
        label: Column | None,
        folder: Path | None = None,
        how: RecordFormat = AS_DETECTED,
        suffixes: frozenset[str] = SUFFIXES,
    ) -> None:
        self.path, self.folder, self._missing = path, folder or path.parent, how.missing
        cells = how.cells(path, "tsv" if ".tsv" in path.name.lower() else "csv")
        self._names = names = names_of(cells, how.header, suffixes)
        if how.strict:
            cells.check_width(names)
        images = self._column(names, image, ("image", "path", "file", "filename"))
        labels = self._column(names, label, ("label", "class"))
        if not names and labels is None and (cells.columns(names) == 2 or (cells.columns(names) > 2 and not images)):
            labels = 1 - (images or 0)
        columns = (images or 0,) if labels is None else (images or 0, labels)
        self.notes: tuple[str, ...] = tuple(cells.notes(how.header, how.quoted, None, columns))
        if how.header is None and bool(names) != bool(cells.heading.names):
            what = "names no file, and is read as names" if names else "names a file, and is read as data"
            self.notes = (
                f"the first line of {brief(path.name)} {what} (data.header)",
                *cells.notes(bool(names), how.quoted, None, columns),
            )
        width, rows = cells.columns(names), [(cells.line(i), cells[i]) for i in range(bool(names), len(cells))]
        self._rows = [
            _Row("", None, lacking)
            if (lacking := no_record(row, names, width)) is not None
            else self._row(row, images or 0, labels, line)
            for line, row in rows
            if row
        ]
        self.names: Sequence[str] = [row.image for row in self._rows]

    def _column(self, names: Sequence[str], wanted: Column | None, defaults: tuple[str, ...]) -> int | None:
        """The index of a column by its name or number or, without one, by the default names."""
        if isinstance(wanted, int):
            return wanted
        if wanted is not None and wanted not in names:
            known = nearest(wanted, names) if names else "its first line is read as data (data.header=true: as names)"
            raise ValueError(f"{brief(self.path)} has no column {brief(wanted)}; {known}")
        name = wanted or next((default for default in defaults if default in names), None)
        if name is not None and names.count(name) > 1:
            raise ValueError(
                f"{brief(self.path)} has {names.count(name)} columns {brief(name)}; rename one, or number the columns from 0"
            )
        return None if name is None else names.index(name)

    def _row(self, row: list[str], image: int, label: int | None, line: int) -> _Row:
        if len(row) <= max(image, label or 0):
            raise ValueError(
                f"{brief(self.path)}, line {line:,}, has {len(row)} cells, fewer than the columns that are read"
            )
        name = row[image].strip()
        if name:
            path = inside(
                self.folder,
                name,
                f"{str(self.path)!r}, line {line:,},",
                "another folder can be named (data.images, data.sounds or data.videos)",
            )
            name = path.relative_to(self.folder).as_posix() if "\\" in name else name
        if label is None:
            return _Row(name, None)
        named = row[label].strip()
        return _Row(name, missing_label(named, self._names[label] if self._names else label, self._missing) or named)

    def label(self, i: int) -> str | None:
        return self._rows[i].label

    def split(self, i: int) -> Split | None:
        return None

    def read(self, i: int) -> bytes | Skipped:
        name = self._rows[i].image
        return content_of(self.folder / name) if name else Skipped(self._rows[i].skipped)
