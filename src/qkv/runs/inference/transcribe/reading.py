"""Sounds to transcribe: files of any kind, their bytes, or waveforms, at the rate that a model reads."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ....core.spec import brief, counted
from ....data.media.audio import CLIPPED, Wave, clipped, decode, resampled
from ....data.media.audio_length import TRUNCATED
from ....data.media.images import content
from ....data.media.video import is_container, sound_of
from ....data.source import Skipped

Sound = str | Path | bytes | tuple[Wave, int]
SoundT = TypeVar("SoundT", bound=Sound)


def read(sound: Sound, rate: int) -> tuple[str, Wave]:
    """The name of a sound, and its waveform at a rate. Warns about one that is clipped."""
    if isinstance(sound, tuple):
        name, found = "the waveform", _checked(*sound)
    else:
        name = "the sound" if isinstance(sound, bytes) else str(sound)
        data = sound if isinstance(sound, bytes) else content(sound)
        found = decode(data) if data.startswith(b"OggS") or not is_container(data) else sound_of(data, name)
        if isinstance(found, Skipped) and data.startswith(b"OggS") and found != TRUNCATED:
            found = sound_of(data, name)  # of a video
    if isinstance(found, Skipped):
        raise ValueError(f"{brief(name)} can't be transcribed: it is {found}")
    wave, own = found
    if (share := clipped(wave)) > CLIPPED:
        warnings.warn(
            f"{brief(name)} is clipped: {share:.1%} of its samples are in stretches at full scale, and words may be missed",
            stacklevel=3,
        )
    return name, resampled(wave, own, rate)


def _checked(wave: Any, rate: Any) -> tuple[Wave, int] | Skipped:
    """A waveform that was given as numbers."""
    samples = np.asarray(wave)
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise ValueError(
            f"a waveform is one row of floating-point samples from −1 to 1, not {samples.dtype} {samples.shape}; average "
            "the channels, and divide integers by their largest"
        )
    if type(rate) is not int or rate < 1:
        raise ValueError(f"the rate of a waveform is a whole number of samples per second, not {brief(rate)}")
    if not len(samples):
        return Skipped("without sound")
    if not np.isfinite(samples).all():
        return Skipped(f"of {counted(int((~np.isfinite(samples)).sum()), 'sample')} that are no numbers")
    return samples.astype(np.float32), rate
