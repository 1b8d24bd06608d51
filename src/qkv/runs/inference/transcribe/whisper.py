"""Long sounds with Whisper: windows that advance by the timestamps that the model writes (Radford et al. 2022, §3.8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ....data.media.audio import Wave
from ..loaded import LoadedModel
from .codes import Codes
from .languages import code_of
from .listening import Listening
from .pieces import WindowPiece, pieces
from .settings import TranscribeSettings
from .transcript import SpokenSegment, Transcript
from .window import Decoded, HeardWindow
from .words import words_of


class LongForm:
    """A sound that is transcribed from window to window."""

    def __init__(self, run: LoadedModel, codes: Codes, listening: Listening, settings: TranscribeSettings) -> None:
        self.run, self.codes, self.listening, self.settings = run, codes, listening, settings
        self.history: list[list[int]] = []  # the tokens of all segments
        self.conditions = settings.condition  # whether the next window reads them
        self.language: str | None = None
        self.probability: float | None = None

    def transcribe(self, wave: Wave, name: str = "") -> Transcript:
        """The transcript of a waveform at the model's rate."""
        features = self.listening.features(wave)
        frames = max(len(wave) // self.listening.hop, 1)
        segments = [segment for segment in self.segments(features, frames) if segment.text.strip()]
        text = "".join(segment.text for segment in segments).strip()
        duration = len(wave) / self.listening.rate
        return Transcript(text, tuple(segments), duration, name, self.language, self.probability)

    def segments(self, features: Float[Tensor, "1 mels frames"], frames: int) -> Iterator[SpokenSegment]:
        """Return the segments of a sound with this many frames. Features may continue with silence."""
        seek, size = 0, self.listening.window
        timestamps = self.settings.timestamps and self.codes.first is not None
        while seek < frames:
            length = min(size, frames - seek)
            part = features[..., seek : seek + (size if seek == 0 and frames <= size else length)]
            window = HeardWindow(self.run, self.codes, F.pad(part, (0, size - part.shape[-1])))
            prompt = self._prompt(window, timestamps)
            made = self._decoded(window, prompt, timestamps, seek)
            if made.silent:
                seek += length
                continue
            found, following = pieces(made.tokens, self.codes.first or self.run.model.vocab_size, length // self.stride)
            yield from self._segments(window, prompt, made, found, seek, length)
            seek += length if not following else min(following * self.stride, length)

    @property
    def stride(self) -> int:
        """Frames in a step of timestamps."""
        return self.listening.stride

    def _decoded(self, window: HeardWindow, prompt: Sequence[int], timestamps: bool, seek: int) -> Decoded:
        settings = self.settings
        beams = {} if settings.num_beams is None else {"num_beams": settings.num_beams}
        made = window.decode(
            prompt, timestamps, settings.temperatures, settings.thresholds, settings.seed + seek, beams
        )
        self.conditions = settings.condition and made.temperature < 0.5
        return made

    def _prompt(self, window: HeardWindow, timestamps: bool) -> list[int]:
        """What the decoder reads before a window's text: the end of what was said before, language and task."""
        if self.codes.languages and self.language is None:
            if self.settings.language is None:
                self.language, self.probability = window.language()
            else:
                self.language = code_of(self.settings.language, self.codes.languages)
        prompt = self.codes.prompt(self.language or self.settings.language, self.settings.task, timestamps)
        before = self._before()
        return [*before, *prompt]

    def _before(self) -> list[int]:
        """The last tokens of the text so far, of which half of the context is kept, after the token that announces them."""
        first, previous = self.codes.first or self.run.model.vocab_size, self.codes.previous
        room = (self.run.model.max_positions or 448) // 2 - 1
        if not self.conditions or not self.history or previous is None or room < 1:
            return []
        kept = [ids[:-1] if len(ids) > 2 and ids[-2] >= first else ids for ids in self.history]
        return [previous, *[token for ids in kept for token in ids][-room:]]

    def _segments(
        self,
        window: HeardWindow,
        prompt: Sequence[int],
        made: Decoded,
        found: list[WindowPiece],
        seek: int,
        length: int,
    ) -> Iterator[SpokenSegment]:
        step, offset = self.listening.step, seek * self.listening.hop / self.listening.rate
        words = (
            words_of(window, prompt, made, found, length // self.stride, self.language) if self.settings.words else None
        )
        for i, piece in enumerate(found):
            tokens = made.tokens[piece.begin : piece.end]
            self.history.append(tokens)
            start, end = (offset + place * step for place in (piece.start, piece.stop))
            inside = () if words is None else words[i]
            shifted = (replace(w, start=w.start * step + offset, end=w.end * step + offset) for w in inside)
            yield SpokenSegment(
                start, end, window.text(tokens), tuple(tokens), made.log_probability, made.no_speech,
                made.temperature, tuple(shifted),
            )  # fmt: skip
