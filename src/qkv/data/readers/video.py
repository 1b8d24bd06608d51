"""Video classification data: MP4, WebM and other videos, or animated images, in folders named after their classes."""

from __future__ import annotations

from ..media import image_files, video
from .images import Decode, ImageFiles


class Clips(ImageFiles, kind="clips"):
    """Videos (MP4, MOV, WebM, MKV, AVI …, with PyAV) and animated GIF, WebP or PNG files in folders named after their
    classes, as in `images`. Of a video with more than `most_pixels` in all, every second, fourth … frame is read. Files that
    can't be read are skipped and counted."""

    @property
    def holds(self) -> str:
        return "video"

    @property
    def suffixes(self) -> frozenset[str]:
        return image_files.SUFFIXES | video.SUFFIXES

    @property
    def decode(self) -> Decode:
        return video.decode_frames
