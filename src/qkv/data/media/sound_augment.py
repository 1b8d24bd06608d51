"""Data augmentation for sounds: speed, vocal tract length, noise, loudness, and masking of spectrograms (SpecAugment).

A new one is a subclass of `SoundAugmentation` with a `kind` and a `__call__`.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from ...core.optional_libraries import need
from ...core.spec import Spec
from .audio import Wave
from .augment import Range

Random = np.random.Generator
Probability = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, lt=0.5)]


class SoundAugmentation(Spec, role="sound-augmentation"):
    """A random change to a sound, of the share `p` of all sounds."""

    p: Probability = 1.0

    def __call__(self, wave: Wave, random: Random) -> Wave:
        """The changed waveform."""
        return wave

    def warp(self, random: Random) -> float:
        """The factor by which the frequencies of a spectrogram are stretched; 1 for none."""
        return 1.0

    def happens(self, random: Random) -> bool:
        """Draw whether a sound is changed."""
        return self.p == 1.0 or float(random.random()) < self.p


class SpeedChange(SoundAugmentation, kind="speed"):
    """Play a sound faster or slower by a factor from 1 − `by` to 1 + `by` (Ko et al. 2015). Pitch and formants move with it,
    so the voice is another one."""

    by: Share = 0.1

    def __call__(self, wave: Wave, random: Random) -> Wave:
        factor = float(random.uniform(1 - self.by, 1 + self.by))
        return faster(wave, factor) if self.happens(random) else wave


class VocalTract(SoundAugmentation, kind="vocal-tract"):
    """Stretch the frequencies of a spectrogram by a factor from 1 − `by` to 1 + `by`, as a shorter or longer vocal tract
    does; tempo and pitch stay (vocal tract length perturbation, Jaitly & Hinton 2013). Only log-mel frames change."""

    by: Share = 0.1

    def warp(self, random: Random) -> float:
        factor = float(random.uniform(1 - self.by, 1 + self.by))
        return factor if self.happens(random) else 1.0


class WhiteNoise(SoundAugmentation, kind="white-noise"):
    """Add white noise, `below` the sound's own power by decibels drawn from this range."""

    below: Range = (10.0, 40.0)

    def __call__(self, wave: Wave, random: Random) -> Wave:
        below = float(random.uniform(*self.below))
        if not self.happens(random) or not len(wave):
            return wave
        power = float(np.square(wave, dtype=np.float64).mean()) * 10 ** (-below / 10)
        return wave + (np.sqrt(power) * random.standard_normal(len(wave))).astype(np.float32)


class Gain(SoundAugmentation, kind="gain"):
    """Make a sound louder or softer by up to `decibels`."""

    decibels: float = Field(default=10.0, gt=0, le=60)

    def __call__(self, wave: Wave, random: Random) -> Wave:
        factor = 10 ** (float(random.uniform(-self.decibels, self.decibels)) / 20)
        return wave * np.float32(factor) if self.happens(random) else wave


def faster(wave: Wave, factor: float) -> Wave:
    """A sound played `factor` times as fast: resampled by its Fourier transform, without what is above the new Nyquist
    frequency."""
    need("augmenting a sound", "scipy")
    from scipy.fft import irfft, next_fast_len, rfft

    size = max(round(len(wave) / factor), 1)
    if size == len(wave) or not len(wave):
        return wave
    padded = next_fast_len(len(wave) + 64, real=True)  # silence, so the end does not leak into the beginning
    new = round(padded * size / len(wave))
    spectrum = rfft(np.pad(wave, (0, padded - len(wave))))
    bins = new // 2 + 1
    kept = np.zeros(bins, spectrum.dtype)
    kept[: min(bins, len(spectrum))] = spectrum[:bins]
    return np.asarray(irfft(kept, new)[:size] * (new / padded), np.float32)


def masked_stretch(axis: int, size: int, most: int, random: Random) -> tuple[slice, ...]:
    """Draw a SpecAugment mask (Park et al. 2019): up to `most` consecutive mel bands or frames, of the `size` that a
    spectrogram has along `axis`. Return it as an index into the spectrogram."""
    width = int(random.integers(0, min(most, size) + 1))
    start = int(random.integers(0, size - width + 1))
    return (slice(None),) * axis + (slice(start, start + width),)
