"""Audio: waveforms from files (with soundfile), resampling, and log-mel spectrograms."""

from __future__ import annotations

import io
import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ...core.optional_libraries import need
from ...core.spec import brief
from ..source import Example, Skipped
from .audio_length import TRUNCATED, ogg_streams, with_length
from .image_files import content_of
from .images import content

Wave = NDArray[np.float32]
"""(samples,), −1 … 1, one channel."""

LOWEST_RATE, HIGHEST_RATE = 100, 768_000  # Hz: other rates don't occur, and resampling them would fill the memory
MOST_SAMPLES = 1 << 28  # in a file, all channels together: 50 minutes of stereo at 44.1 kHz, 1 GiB
_LOUDEST = 1e4
_UNKNOWN = 0x7FFF_F000  # a chunk of this size or more was written to a pipe, when its length was unknown
# libsndfile's note that a file ends before the end of its samples.
_CUT = re.compile(r"(?:data|SSND|Riff size|riff) *: (\d+) \(should be (\d+)\)")
_NOTHING = Skipped("without sound")
_FLOOR = 1e-10  # of a power, before its logarithm
CLIPPED = 1e-3  # share of samples, see `clipped`
_FULL, _STRETCH = 0.98, 3
_CROSSINGS, _MOST_TAPS = 64, 1 << 23  # zero crossings of a filter's sinc on each side, and its most taps
_KAISER = 10.06  # the window's β for a stopband 100 dB down, half as wide as _TRANSITION / _CROSSINGS of the passband
_TRANSITION = 3.21


def decode(data: bytes) -> tuple[Wave, int] | Skipped:
    """Decode the bytes of a sound file, WAV, FLAC, Ogg, MP3 or another format of libsndfile: the waveform and its sample
    rate, or why it is skipped. Channels are averaged."""
    if not data.startswith(b"OggS"):
        return _decoded(data)
    streams = ogg_streams(data)
    sounds = list(map(_decoded, streams or [data]))
    if not streams and (sounds[0] == _NOTHING or not isinstance(sounds[0], Skipped)):
        return TRUNCATED
    if (bad := next((one for one in sounds if isinstance(one, Skipped)), None)) is not None:
        return bad
    waves, rates = zip(*sounds, strict=True)
    if len(set(rates)) > 1:
        return Skipped("of several streams that differ in their sample rate")
    return np.concatenate(waves), rates[0]


def _decoded(data: bytes) -> tuple[Wave, int] | Skipped:
    need("reading or writing a sound file", "soundfile")
    import soundfile

    if not data:
        return Skipped("empty")
    sized = with_length(data)
    if isinstance(sized, Skipped):
        return sized
    try:
        with soundfile.SoundFile(io.BytesIO(sized.data)) as file:
            rate, channels, length = file.samplerate, file.channels, sized.samples or file.frames
            if not LOWEST_RATE <= rate <= HIGHEST_RATE:
                return Skipped(f"of a rate outside {LOWEST_RATE:,} … {HIGHEST_RATE:,} Hz")
            if length * channels > MOST_SAMPLES:
                return Skipped(f"longer than {MOST_SAMPLES:,} samples")
            cut = any(int(there) < int(size) < _UNKNOWN for size, there in _CUT.findall(file.extra_info))
            frames = file.read(length, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, ValueError, MemoryError) as error:
        return Skipped(f"no sound that can be read ({str(error).rpartition(': ')[2].rstrip('.') or 'damaged'})")
    if cut or len(frames) < length:
        return TRUNCATED
    if not len(frames):
        return _NOTHING
    if not (frames.min() >= -_LOUDEST and frames.max() <= _LOUDEST):  # nor NaN
        return Skipped("of samples that are no numbers, or far beyond −1 … 1")
    return frames.mean(1), rate


def duration(data: bytes) -> tuple[float, int] | None:
    """The duration of a sound file in seconds, and its sample rate, without decoding it; None if it can't be read."""
    need("reading or writing a sound file", "soundfile")
    import soundfile

    sized = with_length(data)
    try:
        if isinstance(sized, Skipped):
            return None
        info = soundfile.info(io.BytesIO(sized.data))
        return (sized.samples or info.frames) / info.samplerate, info.samplerate
    except (soundfile.SoundFileError, OSError, ValueError, MemoryError, ZeroDivisionError):
        return None


def read(path: str | Path) -> tuple[Wave, int]:
    """Read a sound file: its waveform and sample rate. Raises ValueError that names the file if it can't be read."""
    sound = decode(content(path))
    if isinstance(sound, Skipped):
        raise ValueError(f"{brief(path)} can't be read as a sound: it is {sound}")
    return sound


def wave_of(example: Example, rate: int | None = None) -> tuple[Wave, int] | Skipped:
    """The sound of an example, whose "audio" is a file, its bytes, a waveform of the "rate" or a function that makes one,
    resampled to `rate` unless that is None; or why it is skipped."""
    sound = example["audio"]
    if isinstance(sound, Path):
        sound = content_of(sound)
    elif callable(sound):
        sound = sound()
    sound = (
        decode(sound) if isinstance(sound, bytes) else sound if isinstance(sound, Skipped) else (sound, example["rate"])
    )
    if isinstance(sound, Skipped) or rate is None:
        return sound
    samples, own = sound
    if len(samples) * rate > MOST_SAMPLES * own:
        return Skipped(f"longer than {MOST_SAMPLES:,} samples at {rate:,} Hz")
    return resampled(samples, own, rate), rate


def clipped(wave: Wave) -> float:
    """The share of samples in stretches of three or more equal ones at full scale; a sound with more than `CLIPPED` counts
    as clipped."""
    loud = np.abs(wave) >= _FULL
    if len(wave) < _STRETCH or not loud.any():
        return 0.0
    same = loud[1:] & (wave[1:] == wave[:-1])
    stretches = np.convolve(same, np.ones(_STRETCH - 1), "valid") == _STRETCH - 1
    return float(stretches.sum() / len(wave))


def encode(samples: Wave, rate: int) -> bytes:
    """Encode a waveform as a WAV file of 16 bits."""
    need("reading or writing a sound file", "soundfile")
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.clip(samples, -1, 1), rate, "PCM_16", format="WAV")
    return file.getvalue()


def resampled(samples: Wave, rate: int, wanted: int) -> Wave:
    """Resample a waveform with a polyphase filter: flat to 0.91 of the lower Nyquist frequency, and 100 dB down above it."""
    if rate == wanted:
        return samples
    need("changing the sample rate of a sound", "scipy")
    from scipy.signal import resample_poly

    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    return np.asarray(resample_poly(samples, up, down, window=_low_pass(max(up, down))), np.float32)


@lru_cache(maxsize=16)
def _low_pass(factor: int) -> NDArray[np.float32]:
    """The taps of a low-pass filter at 1/factor of the Nyquist frequency: a sinc under a Kaiser window. Rates without a
    common divisor, of which the factor is huge, get a shorter one."""
    need("changing the sample rate of a sound", "scipy")
    from scipy.signal import firwin

    crossings = max(min(_CROSSINGS, _MOST_TAPS // factor), 16)
    cutoff = (1 - _TRANSITION / crossings) / factor
    return np.asarray(firwin(2 * crossings * factor + 1, cutoff, window=("kaiser", _KAISER)), np.float32)


Scale = Literal["htk", "slaney"]


@lru_cache(maxsize=64)
def mel_filters(
    n_mels: int, n_fft: int, rate: int, scale: Scale = "htk", warp: float = 1.0
) -> Float[Tensor, "mels bins"]:
    """A mel filter bank: triangles over the bins of a spectrum, evenly spaced on the mel scale from 0 to rate/2 Hz.

    "htk":    mel(f) = 2595 log₁₀(1 + f/700) (O'Shaughnessy 1987), each triangle 1 high.
    "slaney": mel(f) = 3f/200 below 1 kHz and 15 + 27 log₆.₄(f/1000) above (Slaney 1998, Auditory Toolbox; librosa,
              Whisper), each triangle of area 1 Hz.

    With `warp` α, a band reads what is at α times its frequency up to 0.85 min(1, 1/α) of the Nyquist frequency, and above
    by a line that ends there (Jaitly & Hinton 2013).
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
    """Frequencies times `by`; above a knee along the line to the highest frequency, which stays."""
    knee = 0.85 * highest * min(1.0, 1 / by)
    above = by * knee + (highest - by * knee) * (hertz - knee) / (highest - knee)
    return torch.where(hertz <= knee, by * hertz, above)


def _corners(n_mels: int, highest: float, scale: Scale) -> Float[Tensor, " mels+2"]:
    """The frequencies in Hz where the triangles begin, peak and end."""
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
    """The log-mel spectrogram: log₁₀ of the power in each mel band, in ⌊n / hop⌋ frames of n_fft samples under a Hann
    window, one every `hop` samples. `scale` and `warp` are as in `mel_filters`.

    Frames are centered, with the sound mirrored at both ends. Powers are clamped to 1e-10 or more. Raises ValueError for a
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
    """Log-mel spectrograms as Whisper reads them: (max(x, m − 8) + 4) / 4, m being the largest value of each sound
    (Radford et al. 2022)."""
    loudest = mels.amax((1, 2), keepdim=True)
    return (torch.maximum(mels, loudest - 8) + 4) / 4


@lru_cache(maxsize=16)
def _hann(n_fft: int, device: torch.device) -> Float[Tensor, " samples"]:
    return torch.hann_window(n_fft, device=device)
