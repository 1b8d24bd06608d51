"""Sounds to transcribe: files of any kind, their bytes, or waveforms, at the rate that a model reads."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TypeVar

from ....core.spec import brief
from ....data.media.audio import CLIPPED, Wave, clipped, decode, resampled
from ....data.media.given import checked_wave, not_a_sound
from ....data.media.images import content
from ....data.source import Skipped

Sound = str | Path | bytes | tuple[Wave, int]
SoundT = TypeVar("SoundT", bound=Sound)


def read(sound: Sound, rate: int) -> tuple[str, Wave]:
    """Return the name of a sound, and its waveform at a sample rate. Warn if it is clipped.

    Raises ValueError if it can't be read.
    """
    pair = isinstance(sound, tuple) and len(sound) == 2
    if not pair and not isinstance(sound, str | bytes | os.PathLike):
        raise not_a_sound(sound)
    if isinstance(sound, tuple):
        name, found = "the waveform", checked_wave(*sound)
    else:
        name = "the sound" if isinstance(sound, bytes) else str(sound)
        data = sound if isinstance(sound, bytes) else content(sound)
        found = decode(data, name)
    if isinstance(found, Skipped):
        raise ValueError(f"{brief(name)} can't be transcribed: it is {found}")
    wave, own = found
    if (share := clipped(wave)) > CLIPPED:
        warnings.warn(
            f"{brief(name)} is clipped: {share:.1%} of its samples are in stretches at full scale, and words may be missed",
            stacklevel=3,
        )
    return name, resampled(wave, own, rate)
