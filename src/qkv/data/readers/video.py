"""Video classification data: MP4, WebM and other videos, or animated images, in folders named after their classes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ..files.records import Column
from ..media import image_files, video
from .images import Decode, ImageFiles


class Clips(ImageFiles, kind="clips"):
    """Videos (MP4, MOV, WebM, MKV, AVI …, with PyAV) and animated GIF, WebP or PNG files in folders named after their
    classes, as in `images`. Of a video with more than `most_pixels` in all, every second, fourth … frame is read. Files that
    can't be read are skipped and counted.

    video_column, label_column: of a CSV or TSV file, see `image_files.Listed`.
    videos: the folder of the videos that a CSV or TSV file names; by default that of the file. Others are not read.
    """

    path_fields: ClassVar[tuple[str, ...]] = ("path", "validation_path", "test_path", "videos")

    video_column: Column | None = None
    label_column: Column | None = None
    videos: str | None = None

    @property
    def columns(self) -> tuple[Column | None, Column | None]:
        return self.video_column, self.label_column

    @property
    def listed_in(self) -> Path | None:
        return None if self.videos is None else Path(self.videos).expanduser()

    @property
    def holds(self) -> str:
        return "video"

    def notes(self) -> tuple[str, ...]:
        endings = [Path(name).suffix.lower() for name in self._files(self.path).names]
        films = sum(ending in video.SUFFIXES for ending in endings)
        stills = sum(ending not in (*video.SUFFIXES, ".gif", ".webp", ".apng") for ending in endings)
        note = (
            f"pictures beside videos ({stills:,} of {len(endings):,} files) are read as videos of one frame; remove them if "
            "they are none"
        )
        return (*super().notes(), *((note,) if films and stills else ()))

    @property
    def suffixes(self) -> frozenset[str]:
        return image_files.SUFFIXES | video.SUFFIXES

    @property
    def decode(self) -> Decode:
        return video.decode_frames
