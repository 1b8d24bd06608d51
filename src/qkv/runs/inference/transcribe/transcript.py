"""What was said in a sound: text, segments and words with their times, also as subtitles and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Subtitles = Literal["srt", "vtt"]


@dataclass(frozen=True)
class TimedWord:
    """A word, as it stands in the text with the space before it; `start` and `end` in seconds, and its probability, which is
    None if the model gives none."""

    text: str
    start: float
    end: float
    probability: float | None = None


@dataclass(frozen=True)
class SpokenSegment:
    """A part of a transcript, with its times in seconds.

    tokens:         with timestamps, without the end-of-text token.
    log_probability: the mean of the tokens' log-probabilities (nats); None if the model gives none.
    no_speech:      the probability that nothing is said in the window that the segment is in.
    temperature:    at which the window was decoded.
    words:          if they were asked for.
    """

    start: float
    end: float
    text: str
    tokens: tuple[int, ...] = ()
    log_probability: float | None = None
    no_speech: float | None = None
    temperature: float = 0.0
    words: tuple[TimedWord, ...] = ()


@dataclass(frozen=True)
class Transcript:
    """The text of a sound, with its segments.

    name:     the file, or "-" for standard input.
    duration: in seconds.
    language: its code, such as "en"; None for a model of one language.
    language_probability: of a detected language; None if it was given.
    """

    text: str
    segments: tuple[SpokenSegment, ...]
    duration: float
    name: str = ""
    language: str | None = None
    language_probability: float | None = None

    @property
    def words(self) -> tuple[TimedWord, ...]:
        """The words of all segments."""
        return tuple(word for segment in self.segments for word in segment.words)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for JSON, without the tokens."""
        fields = asdict(self)
        for segment in fields["segments"]:
            del segment["tokens"]
            if not segment["words"]:
                del segment["words"]
        return {"input": fields.pop("name"), **fields}

    def subtitles(self, kind: Subtitles, words: bool = False) -> str:
        """Return subtitles in the format SubRip ("srt") or WebVTT ("vtt"): one for each segment, or for each word."""
        parts: Iterable[SpokenSegment | TimedWord] = self.words if words else self.segments
        comma = "," if kind == "srt" else "."
        cues = []
        for number, part in enumerate(parts, 1):
            head = f"{number}\n" if kind == "srt" else ""
            text = " ".join(part.text.split()).replace("-->", "->")
            if kind == "vtt":
                text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            cues.append(f"{head}{clock(part.start, comma)} --> {clock(part.end, comma)}\n{text}\n")
        return "\n".join(cues) if kind == "srt" else "\n".join(["WEBVTT\n", *cues])


def clock(seconds: float, comma: str = ".") -> str:
    """Seconds as hours, minutes, seconds and milliseconds: 00:01:02.500."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{comma}{rest % 1000:03}"
