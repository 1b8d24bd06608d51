"""Audio classification data: WAV, FLAC, Ogg, MP3 and other sound files in folders named after their classes."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from ...core import expressions
from ..files.records import Column, RecordFormat
from ..holdout import HoldOutSource
from ..media.audio import MOST_SAMPLES, Wave, decode, resampled
from ..media.image_files import Files, open_image_files, stamp_of
from ..source import Example, Skipped, Split, Table

_FORMATS = "wav wave flac ogg oga opus mp3 aif aiff aifc au snd caf w64 rf64"
SUFFIXES = frozenset(f".{name}" for name in _FORMATS.split())
_ENTRY = 500  # bytes of a cached example besides its samples


class Sounds(HoldOutSource, kind="sounds"):
    """Audio files in a folder or an archive (.zip, .tar, .tar.gz …), each in a folder named after its class, optionally
    below `train`, `validation` and `test`. Files that can't be read are skipped and counted.

    header: whether the first line of a table of sounds holds column names; by default detected.
    missing: texts in such a table that stand for no class; by default as in pandas, such as "nan", "NA" and "None".
    audio_column, label_column: of such a table, see `image_files.Listed`.
    sounds: the folder of the sounds that a table names; by default that of the table. Others are not read.
    label: a regular expression for the path, in place of folders; its first group, or the whole match, is the class.
    validation, test: regular expressions; a file whose path matches belongs to that split.
    rate:  the sample rate in Hz; by default that of the first file.
    rates: for files with another sample rate: "raise" an error, "skip" and count them, or "resample" them.
    cache: MiB of memory for decoded sounds, in each process that reads.
    """

    path_fields: ClassVar[tuple[str, ...]] = ("path", "sounds")

    path: str = ""
    header: bool | None = None
    missing: tuple[str, ...] | None = None
    audio_column: Column | None = None
    label_column: Column | None = None
    sounds: str | None = None
    label: str | None = None
    validation: str | None = None
    test: str | None = None
    rate: int | None = Field(default=None, gt=0)
    rates: Literal["raise", "skip", "resample"] = "raise"
    cache: int = Field(default=256, ge=0)

    @field_validator("label", "validation", "test")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        expressions.check(value or "")
        return value

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("soundfile",)

    def stamp(self) -> tuple[Hashable, ...]:
        return self.path, *stamp_of(Path(self.path).expanduser())

    def _files(self) -> Files:
        if not self.path:
            raise ValueError("no training data: give data.path, a folder or an archive of sounds")
        path = Path(self.path).expanduser()
        return open_image_files(
            path,
            stamp_of(path),
            (self.audio_column, self.label_column),
            SUFFIXES,
            None if self.sounds is None else Path(self.sounds).expanduser(),
            RecordFormat(header=self.header, strict=False, missing=self.missing),
        )

    def split_of(self, name: str, placed: Split | None) -> Split:
        patterns: dict[Split, str | None] = {"test": self.test, "validation": self.validation}
        for split, pattern in patterns.items():
            if pattern is not None and expressions.search(pattern, name):
                return split
        return placed or "train"

    def class_of(self, name: str, placed: str | None) -> str | None:
        if self.label is None:
            return placed
        match = expressions.search(self.label, name)
        return None if match is None else match[1] if match.re.groups else match[0]

    def notes(self) -> tuple[str, ...]:
        return (*(self._files().notes if self.label is None else ()), *super().notes())

    def _members(self, split: Split) -> list[int]:
        files = self._files()
        return [i for i, name in enumerate(files.names) if self.split_of(name, files.split(i)) == split]

    def gives(self, split: Split) -> bool:
        return bool(self._members(split))

    def open(self, split: Split) -> Table:
        return _sounds(self, split, self.stamp())


class _Sounds:
    """The sounds of a split. Decoded sounds are cached until they fill `Sounds.cache`."""

    def __init__(self, source: Sounds, files: Files, members: list[int]) -> None:
        self._source, self._files, self._members = source, files, members
        self._cache: dict[int, Example | Skipped] = {}
        self._left = source.cache << 20  # bytes

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, i: int) -> Example | Skipped:
        if i in self._cache:
            return self._cache[i]
        example = self._read(self._members[i])
        size = _ENTRY + (0 if isinstance(example, Skipped) else example["audio"].nbytes)
        if size <= self._left:
            self._left -= size
            self._cache[i] = example
        return example

    def _read(self, i: int) -> Example | Skipped:
        source, name = self._source, self._files.names[i]
        label = source.class_of(name, self._files.label(i))
        if label is None or isinstance(label, Skipped):
            return Skipped(label or "without a class", name)
        sound = _decoded(self._files, i)
        if isinstance(sound, Skipped):
            return Skipped(sound, name)
        samples, rate = sound
        wanted = source.rate or _rate(source, source.stamp())
        if rate != wanted and source.rates != "resample":
            if source.rates == "skip":
                return Skipped(f"of another rate than {wanted:,} Hz", name)
            raise ValueError(
                f"{source.path}, {name}: {rate:,} samples a second, and the first file has {wanted:,}; data.rates=resample "
                "converts such files, data.rates=skip skips them"
            )
        if len(samples) * wanted > MOST_SAMPLES * rate:
            return Skipped(f"longer than {MOST_SAMPLES:,} samples at {wanted:,} Hz", name)
        return {"audio": resampled(samples, rate, wanted), "rate": wanted, "label": label, "where": name}


@lru_cache(maxsize=8)
def _sounds(source: Sounds, split: Split, stamp: tuple[Hashable, ...]) -> _Sounds:
    """Return the table of a split. All epochs share it, so files are decoded once."""
    return _Sounds(source, source._files(), source._members(split))


def _decoded(files: Files, i: int) -> tuple[Wave, int] | Skipped:
    data = files.read(i)
    return data if isinstance(data, Skipped) else decode(data)


@lru_cache(maxsize=16)
def _rate(source: Sounds, stamp: tuple[Hashable, ...]) -> int:
    """The sample rate of the first file that can be read."""
    files = source._files()
    for i in range(len(files.names)):
        sound = _decoded(files, i)
        if not isinstance(sound, Skipped):
            return sound[1]
    raise ValueError(f"{source.path} has no sound that can be read")
