"""Log-mel spectrograms of waveforms, and the filters of the mel scale."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

_FLOOR = 1e-10  # the least power, before taking the logarithm
Scale = Literal["htk", "slaney"]


@lru_cache(maxsize=64)
def mel_filters(
    n_mels: int, n_fft: int, rate: int, scale: Scale = "htk", warp: float = 1.0
) -> Float[Tensor, "mels bins"]:
    """A mel filter bank: triangles over the bins of a spectrum, evenly spaced on the mel scale from 0 to rate/2 Hz.

    "htk":    mel(f) = 2595 log₁₀(1 + f/700) (O'Shaughnessy 1987), each triangle 1 high.
    "slaney": mel(f) = 3f/200 below 1 kHz and 15 + 27 log₆.₄(f/1000) above (Slaney 1998, Auditory Toolbox; librosa,
              Whisper), each triangle of area 1 Hz.

    `warp` α multiplies the frequencies of the bands by α, up to 0.85 min(1, 1/α) of the Nyquist frequency. Above, the map
    is linear and ends at the Nyquist frequency (Jaitly & Hinton 2013).
    """
    bins = torch.linspace(0, rate / 2, n_fft // 2 + 1, dtype=torch.float64)
    corners = _corners(n_mels, rate / 2, scale)
    if warp != 1:
        corners = _warped(corners, rate / 2, warp)
    low, middle, high = (corners[i : i + n_mels, None] for i in range(3))
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    filters = torch.minimum(rising, falling).clamp(min=0)
    return (filters if scale == "htk" else filters * 2 / (high - low)).float()


def _warped(hertz: Float[Tensor, " n"], highest: float, by: float) -> Float[Tensor, " n"]:
    """Multiply the frequencies below a knee by `by`. Map those above it linearly, so `highest` stays the same."""
    knee = 0.85 * highest * min(1.0, 1 / by)
    above = by * knee + (highest - by * knee) * (hertz - knee) / (highest - knee)
    return torch.where(hertz <= knee, by * hertz, above)


def _corners(n_mels: int, highest: float, scale: Scale) -> Float[Tensor, " mels+2"]:
    """Return the frequencies in Hz at which the triangles begin, peak and end."""
    if scale == "htk":
        mels = torch.linspace(0, 2595 * math.log10(1 + highest / 700), n_mels + 2, dtype=torch.float64)
        return 700 * (10 ** (mels / 2595) - 1)
    step = math.log(6.4) / 27
    top = highest * 3 / 200 if highest < 1000 else 15 + math.log(highest / 1000) / step
    mels = torch.linspace(0, top, n_mels + 2, dtype=torch.float64)
    return torch.where(mels < 15, mels * 200 / 3, 1000 * torch.exp(step * (mels - 15)))


def log_mel(
    samples: Float[Tensor, "B n"],
    rate: int,
    *,
    n_mels: int = 64,
    n_fft: int = 512,
    hop: int = 160,
    scale: Scale = "htk",
    warp: float = 1.0,
) -> Float[Tensor, "B mels frames"]:
    """Compute the log-mel spectrogram: log₁₀ of the power in each mel band. A frame has n_fft samples under a Hann window;
    one begins every `hop` samples, and there are ⌊n / hop⌋. `scale` and `warp` are as in `mel_filters`.

    Frames are centered, and the sound is mirrored at both ends. Powers are clamped to 1e-10 or more. Raises ValueError for a
    sound shorter than half a frame.
    """
    if samples.shape[-1] <= n_fft // 2:
        raise ValueError(
            f"a sound of {samples.shape[-1]} samples is too short for frames of {n_fft}; use shorter frames"
        )
    window = _hann(n_fft, samples.device)
    spectrum = torch.stft(samples, n_fft, hop, window=window, center=True, pad_mode="reflect", return_complex=True)
    frames = spectrum[..., : samples.shape[-1] // hop].mT  # as they lie in memory
    power = frames.real.square() + frames.imag.square()
    mels = power @ mel_filters(n_mels, n_fft, rate, scale, warp).to(power.device).T
    return mels.clamp_(min=_FLOOR).log10_().mT.contiguous()


def compressed(mels: Float[Tensor, "B mels frames"]) -> Float[Tensor, "B mels frames"]:
    """Compress log-mel spectrograms as Whisper does: (max(x, m − 8) + 4) / 4, with the largest value m of each sound
    (Radford et al. 2022)."""
    loudest = mels.amax((1, 2), keepdim=True)
    return (torch.maximum(mels, loudest - 8) + 4) / 4


@lru_cache(maxsize=16)
def _hann(n_fft: int, device: torch.device) -> Float[Tensor, " samples"]:
    return torch.hann_window(n_fft, device=device)
