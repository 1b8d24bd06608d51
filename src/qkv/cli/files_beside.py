"""Files beside texts: the pictures and sounds of `--image` and `--sound`, in the places of `<image>` and `<sound>`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runs.inference.run import Run


@dataclass
class FilesBeside:
    """The files of a command. Given texts share them out among their places; each line of standard input, or row of a
    table, has all of them."""

    run: Run
    images: Sequence[str] | None = None
    sounds: Sequence[str] | None = None
    _shared: bool = field(default=True, init=False)

    def beside(self, texts: Sequence[str] | None) -> Sequence[str] | None:
        """Texts of the command line with their files. Raises ValueError if places and files differ in number."""
        if texts is None or not self:
            return texts
        from ..runs.inference.reading.beside import beside, files_of

        self._shared = False
        return beside(self.run, texts, files_of(self.images, self.sounds))

    def of(self, texts: list[str]) -> list[str]:
        """Some of the texts, with their files."""
        if not self or not self._shared:
            return texts
        from ..runs.inference.reading.beside import beside, files_of

        return [beside(self.run, [text], files_of(self.images, self.sounds))[0] for text in texts]

    def __bool__(self) -> bool:
        return bool(self.images or self.sounds)
