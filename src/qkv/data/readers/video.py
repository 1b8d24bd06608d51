"""Video classification data: animated GIF, WebP or PNG files in folders named after their classes."""

from __future__ import annotations

from ..media.video import decode_frames
from .images import Decode, ImageFiles


class Clips(ImageFiles, kind="clips"):
    """Animated GIF, WebP or PNG files in folders named after their classes, as in `images`; each is a "video" of all its
    frames. Files that can't be read are skipped and counted."""

    @property
    def holds(self) -> str:
        return "video"

    @property
    def decode(self) -> Decode:
        return decode_frames
