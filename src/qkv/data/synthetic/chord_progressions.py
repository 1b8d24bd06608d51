"""Generated music: common chord progressions in four voices, in any key."""

from __future__ import annotations

from random import Random
from typing import Self

from pydantic import Field, model_validator

from ..media.note_names import Frame, frame_of, frames_to_text
from ..source import Example
from .base import GeneratedSource, check_range

_SCALES = {"major": (0, 2, 4, 5, 7, 9, 11), "minor": (0, 2, 3, 5, 7, 8, 10)}
_NEXT_DEGREES = {0: (3, 4, 5, 1), 1: (4,), 3: (4, 0, 1), 4: (0, 0, 5), 5: (3, 1)}  # degrees of the scale, from 0
_TENOR, _ALTO, _SOPRANO = 55, 62, 69  # the note around which each voice stays
_BEATS = 2  # frames per chord


class Progressions(GeneratedSource, kind="progressions"):
    """Pieces of `shortest` to `longest` chords, two frames each. The bass plays the root, the upper voices move as little
    as possible, and the soprano has a passing note between chords. A piece begins and ends on the first degree of its key.
    """

    shortest: int = Field(default=6, ge=3)
    longest: int = Field(default=12, ge=3)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_range(self.shortest, self.longest)
        return self

    def generate(self, random: Random) -> Example:
        key, scale = random.randrange(12), _SCALES[random.choice(list(_SCALES))]
        degrees = [0]
        for _ in range(random.randint(self.shortest, self.longest) - 3):
            degrees.append(random.choice(_NEXT_DEGREES[degrees[-1]]))
        frames: list[Frame] = []
        voices = [center + random.randint(-3, 3) for center in (_TENOR, _ALTO, _SOPRANO)]
        for degree in (*degrees, 4, 0):
            tones = [(key + scale[(degree + third) % 7]) % 12 for third in (0, 2, 4)]
            voices = [_nearest(voice, tones, random) for voice in voices]
            bass = 36 + tones[0]
            frames += [frame_of([bass, *voices])] * (_BEATS - 1)
            step = _nearest(voices[-1] + random.choice((-2, 2)), [(key + tone) % 12 for tone in scale], random)
            frames.append(frame_of([bass, *voices[:-1], step]))
        return {"text": frames_to_text(frames), "frames": frames}


def _nearest(note: int, tones: list[int], random: Random) -> int:
    """The note nearest to `note` whose pitch class is one of `tones`; ties are broken at random."""
    return min((abs(d), random.random(), note + d) for d in range(-6, 7) if (note + d) % 12 in tones)[2]
