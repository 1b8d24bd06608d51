"""Audio: waveforms from files (with soundfile), and resampling."""

from __future__ import annotations

import io
import itertools
import math
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.optional_libraries import is_installed, need, optional_library
from ...core.spec import brief
from ..source import Example, Skipped
from .audio_length import TRUNCATED, UNKNOWN_SIZE, ogg_streams, with_length
from .image_files import content_of
from .images import content
from .video import is_container, is_cut, is_ogg_video

Wave = NDArray[np.float32]
"""(samples,), −1 … 1, one channel."""

LOWEST_RATE, HIGHEST_RATE = 100, 768_000  # Hz: other rates don't occur, and resampling them would fill the memory
MOST_SAMPLES = 1 << 28  # in a file, all channels together: 50 minutes of stereo at 44.1 kHz, 1 GiB
_LOUDEST = 1e4
# libsndfile's note that a file ends before the end of its samples.
_CUT = re.compile(r"(?:data|SSND|Riff size|riff) *: (\d+) \(should be (\d+)\)")
_NOTHING = Skipped("without sound")
_UNREADABLE = "no sound that can be read"
CLIPPED = 1e-3  # share of samples, see `clipped`
_FULL, _STRETCH = 0.98, 3
_CROSSINGS, _MOST_TAPS = 64, 1 << 23  # zero crossings of a filter's sinc on each side, and its most taps
_KAISER = 10.06  # the window's β for a stopband 100 dB down, half as wide as _TRANSITION / _CROSSINGS of the passband
_TRANSITION = 3.21


def decode(data: bytes, where: str = "a video") -> tuple[Wave, int] | Skipped:
    """Decode the bytes of a sound file (WAV, FLAC, Ogg, MP3 or another format of libsndfile), or the first audio stream of a
    video (with PyAV). Return the waveform and its sample rate, or why it is skipped. Channels are averaged.

    Raises ValueError that names the file, `where`, if PyAV is needed and not installed.
    """
    if not is_container(data):
        return _decoded(data)
    if data.startswith(b"OggS") and not is_ogg_video(data):
        sound = _of_ogg(data)
        if not (isinstance(sound, Skipped) and sound.startswith(_UNREADABLE) and is_installed("av")):
            return sound  # FFmpeg reads more codecs in Ogg
    return _of_container(data, where)


def _of_ogg(data: bytes) -> tuple[Wave, int] | Skipped:
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
            cut = any(int(there) < int(size) < UNKNOWN_SIZE for size, there in _CUT.findall(file.extra_info))
            frames = file.read(length, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, ValueError, MemoryError) as error:
        return Skipped(f"{_UNREADABLE} ({str(error).rpartition(': ')[2].rstrip('.') or 'damaged'})")
    if cut or len(frames) < length:
        return TRUNCATED
    if not len(frames):
        return _NOTHING
    if not (frames.min() >= -_LOUDEST and frames.max() <= _LOUDEST):  # nor NaN
        return Skipped("of samples that are no numbers, or far beyond −1 … 1")
    return frames.mean(1), rate


def _of_container(data: bytes, where: str) -> tuple[Wave, int] | Skipped:
    """Decode the first audio stream of a container with PyAV, as `decode` does."""
    av = optional_library(f"reading the sound of {brief(where)}", "av")
    if is_cut(data):
        return TRUNCATED
    parts: list[Wave] = []
    length = 0
    try:
        with av.open(io.BytesIO(data)) as file:
            if not file.streams.audio:
                return Skipped("a video without sound")
            rate: int = file.streams.audio[0].rate
            to_floats = av.AudioResampler(format="fltp", rate=rate)
            for frame in itertools.chain(file.decode(audio=0), [None]):
                new = [part.to_ndarray().mean(0) for part in to_floats.resample(frame)]
                parts, length = parts + new, length + sum(map(len, new))
                if length > MOST_SAMPLES:
                    return Skipped(f"longer than {MOST_SAMPLES:,} samples")
    except (av.FFmpegError, ValueError, MemoryError) as error:
        return Skipped(f"{_UNREADABLE} ({str(error).rpartition('] ')[2].split(':')[0] or 'damaged'})")
    wave = np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)
    return (wave, rate) if len(wave) else _NOTHING


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
    sound = decode(content(path), str(path))
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
