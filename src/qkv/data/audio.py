"""Sound as arrays: waveforms from WAV files, and what an ear makes of them, log-mel spectrograms, on PyTorch alone."""

from __future__ import annotations

import io
import math
import wave
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from .sources import Skipped

Wave = NDArray[np.float32]
"""(samples,), −1 … 1, one channel."""

_FLOOR = 1e-10  # of a power, before its logarithm


def decode(data: bytes) -> tuple[Wave, int] | Skipped:
    """The waveform in the bytes of a WAV file (PCM of 8, 16, 24 or 32 bits) and its samples a second; or why there is none.

    Channels are averaged.
    """
    try:
        with wave.open(io.BytesIO(_plain(data))) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            frames, said = file.readframes(file.getnframes()), file.getnframes()
    except (wave.Error, EOFError) as error:
        return Skipped("empty" if not data else f"no WAV file of whole numbers ({str(error) or 'it ends too early'})")
    if not frames:
        return Skipped("without sound")
    if len(frames) < said * width * channels:
        return Skipped("truncated")
    return _numbers(frames, width).reshape(-1, channels).mean(1), rate


def read(path: str | Path) -> tuple[Wave, int]:
    """The waveform in a file and its samples a second. Raises ValueError that names the file where there is none."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}" if not path.is_dir() else f"{str(path)!r} is a folder")
    found = decode(path.read_bytes())
    if isinstance(found, Skipped):
        raise ValueError(f"{str(path)!r} can't be read as a sound: it is {found}")
    return found


def _plain(data: bytes) -> bytes:
    """A file whose header is of the extensible form, as many programs write 24 bits, with the plain one where it holds whole
    numbers: before Python 3.12 its library reads no other."""
    at = data.find(b"fmt ", 12, 4096)
    extensible = at >= 0 and data[at + 8 : at + 10] == b"\xfe\xff" and data[at + 32 : at + 34] == b"\x01\x00"
    return data[: at + 8] + b"\x01\x00" + data[at + 10 :] if extensible else data


def _numbers(frames: bytes, width: int) -> Wave:
    if width == 1:  # these alone are unsigned
        return (np.frombuffer(frames, np.uint8).astype(np.float32) - np.float32(128)) / np.float32(128)
    if width == 3:
        padded = np.zeros((len(frames) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(frames, np.uint8).reshape(-1, 3)
        return padded.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    whole = np.frombuffer(frames, "<i2" if width == 2 else "<i4")
    return whole.astype(np.float32) / np.float32(2 ** (8 * width - 1))


def encode(samples: Wave, rate: int) -> bytes:
    """A WAV file of 16 bits."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


def resampled(samples: Wave, rate: int, wanted: int) -> Wave:
    """The sound with another number of samples a second, by a polyphase filter."""
    if rate == wanted:
        return samples
    from scipy.signal import resample_poly

    common = math.gcd(rate, wanted)
    return np.asarray(resample_poly(samples, wanted // common, rate // common), np.float32)


@lru_cache(maxsize=16)
def mel_filters(n_mels: int, n_fft: int, rate: int) -> Float[Tensor, "mels bins"]:
    """Triangles over the bins of a spectrum whose corners are evenly spaced on the mel scale, from 0 to rate/2 Hz:

    mel(f) = 2595 log₁₀(1 + f/700)                               (O'Shaughnessy 1987)
    """
    bins = torch.linspace(0, rate / 2, n_fft // 2 + 1, dtype=torch.float64)
    mels = torch.linspace(0, 2595 * math.log10(1 + rate / 1400), n_mels + 2, dtype=torch.float64)
    corners = 700 * (10 ** (mels / 2595) - 1)
    low, middle, high = (corners[i : i + n_mels, None] for i in range(3))
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return torch.minimum(rising, falling).clamp(min=0).float()


def log_mel(
    samples: Float[Tensor, "B n"], rate: int, *, n_mels: int = 64, n_fft: int = 512, hop: int = 160
) -> Float[Tensor, "B mels frames"]:
    """log₁₀ of the power in each mel band, ⌊n / hop⌋ frames of n_fft samples under a Hann window, one every `hop` samples.

    A frame stands around its place, sound being mirrored at both ends. Powers below 1e-10 count as that. Raises ValueError
    for a sound shorter than half a frame.
    """
    if samples.shape[-1] <= n_fft // 2:
        raise ValueError(
            f"a sound of {samples.shape[-1]} samples is too short for frames of {n_fft}; take frames of fewer samples"
        )
    window = torch.hann_window(n_fft, device=samples.device)
    spectrum = torch.stft(samples, n_fft, hop, window=window, center=True, pad_mode="reflect", return_complex=True)
    power = spectrum[..., : samples.shape[-1] // hop].abs().square()
    return (mel_filters(n_mels, n_fft, rate).to(power.device) @ power).clamp(min=_FLOOR).log10()
