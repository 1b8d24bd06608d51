"""The files that `--image`, `--sound` and `--video` name. They replace `<image>`, `<sound>` and `<video>` in texts."""

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
    videos: Sequence[str] | None = None
    _shared: bool = field(default=True, init=False)

    def beside(self, texts: Sequence[str] | None) -> Sequence[str] | None:
        """Texts of the command line with their files. Raises ValueError if places and files differ in number."""
        if texts is None or not self:
            return texts
        from ..runs.inference.reading.beside import beside

        self._shared = False
        return beside(self.run, texts, self.by_kind())

    def of(self, texts: list[str]) -> list[str]:
        """Return a subset of the texts with their files."""
        if not self or not self._shared:
            return texts
        from ..runs.inference.reading.beside import beside

        return [beside(self.run, [text], self.by_kind())[0] for text in texts]

    def by_kind(self) -> dict[str, list[object]]:
        """Return the given files for each medium, by its name."""
        from ..runs.inference.reading.beside import files_of

        return files_of(self.images, self.sounds, self.videos)

    def __bool__(self) -> bool:
        return bool(self.images or self.sounds or self.videos)


class FilesInTurn:
    """The files of a conversation: each place of a message takes the next one; a first message without places has all
    before it.

    Raises ValueError at once if places and files of given messages differ in number.
    """

    def __init__(
        self,
        run: Run,
        images: Sequence[str] | None,
        sounds: Sequence[str] | None,
        videos: Sequence[str] | None,
        messages: Sequence[str] | None,
    ) -> None:
        self._run = run
        given = {"image": images, "sound": sounds, "video": videos}
        self._left = {name: list(some or ()) for name, some in given.items()}
        self._first = True
        if messages and any(given.values()):
            from ..runs.inference.reading.beside import beside, files_of

            beside(run, [" ".join(messages)], files_of(images or None, sounds or None, videos or None))

    def content(self, message: str) -> str | list[dict[str, object]]:
        """The content of the next message."""
        first, self._first = self._first, False
        if not any(self._left.values()):
            return message
        from ..runs.inference.reading.beside import beside, content, readers_of

        places = {one.name: message.count(one.marker) for one in readers_of(self._run)}
        counts = {name: places.get(name, 0) for name in self._left}
        if first and not any(counts.values()):
            counts = {name: len(left) for name, left in self._left.items()}
        taken = {name: self._left[name][:count] for name, count in counts.items() if count}
        self._left = {name: left[counts[name] :] for name, left in self._left.items()}
        return content(self._run, beside(self._run, [message], taken)[0])

    def check_used(self) -> None:
        """Raise ValueError if the conversation has no place for some of the files."""
        from ..core.spec import counted

        for name, left in self._left.items():
            if left:
                raise ValueError(
                    f"the messages had no place for {counted(len(left), name)}; write <{name}> where each belongs"
                )
