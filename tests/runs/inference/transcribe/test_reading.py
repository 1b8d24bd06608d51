"""Sounds of all kinds, and what is said of bad ones."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from qkv.data.media.audio import clipped
from qkv.runs.inference.transcribe.reading import read
from qkv.runs.inference.transcribe.recognized import pieces_of

TONE = 0.4 * np.sin(2 * np.pi * 440 * np.arange(24_000) / 48_000)


@pytest.mark.parametrize(
    "format, subtype",
    [("WAV", "PCM_U8"), ("WAV", "PCM_24"), ("WAV", "DOUBLE"), ("WAV", "ULAW"), ("WAV", "IMA_ADPCM"), ("FLAC", "PCM_16"),
     ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16"), ("AU", "PCM_16")],
)  # fmt: skip
def test_formats_rates_and_channels(format: str, subtype: str) -> None:
    channels = 8 if format in ("WAV", "AIFF") and "ADPCM" not in subtype else 2
    file = io.BytesIO()
    soundfile.write(file, np.stack([TONE] * channels, 1), 48_000, subtype, format=format)
    name, wave = read(file.getvalue(), 16_000)
    assert name == "the sound" and abs(len(wave) - 8000) < 1300  # MP3 has frames of silence around it
    spectrum = np.abs(np.fft.rfft(wave[1000:7000] * np.hanning(6000)))
    assert abs(spectrum.argmax() * 16_000 / 6000 - 440) < 5


def test_the_sound_of_a_video(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    for name, codec in (("a.mp4", "aac"), ("b.webm", "libopus"), ("c.mkv", "pcm_s16le")):
        with av.open(str(tmp_path / name), "w") as file:
            stream = file.add_stream(codec, rate=48_000, layout="stereo")
            frame = av.AudioFrame.from_ndarray(
                np.repeat((TONE * 32767).astype(np.int16), 2)[None], format="s16", layout="stereo"
            )
            frame.sample_rate = 48_000
            for packet in [*stream.encode(frame), *stream.encode(None)]:
                file.mux(packet)
        _, wave = read(tmp_path / name, 16_000)
        assert abs(len(wave) - 8000) < 1300
        spectrum = np.abs(np.fft.rfft(wave[1000:7000] * np.hanning(6000)))
        assert abs(spectrum.argmax() * 16_000 / 6000 - 440) < 5
    data = (tmp_path / "a.mp4").read_bytes()
    with pytest.raises(ValueError, match="the sound' can't be transcribed: it is truncated"):
        read(data[: len(data) // 2], 16_000)
    with av.open(str(tmp_path / "d.mp4"), "w") as file:
        video = file.add_stream("mpeg4", rate=5)
        video.width = video.height = 32
        for packet in [*video.encode(av.VideoFrame(32, 32, "yuv420p")), *video.encode(None)]:
            file.mux(packet)
    with pytest.raises(ValueError, match="it is a video without sound"):
        read(tmp_path / "d.mp4", 16_000)


def wav(samples: Any, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, "FLOAT", format="WAV")
    return file.getvalue()


def test_bad_sounds_have_one_sentence_each(tmp_path: Path) -> None:
    (tmp_path / "no.wav").write_bytes(b"nothing")
    for sound, message in (
        (wav(np.zeros(0)), "can't be transcribed: it is without sound"),
        (wav(TONE)[:30_000], "it is truncated"),
        (b"", "it is empty"),
        (tmp_path / "no.wav", "no.wav' can't be transcribed: it is no sound that can be read"),
        (tmp_path / "there.wav", "there is no file"),
        (tmp_path, "is a folder"),
        ((np.zeros(0, np.float32), 16_000), "the waveform' can't be transcribed: it is without sound"),
        ((np.array([0.0, np.nan]), 16_000), "it is of 1 sample that are no numbers|1 sample"),
        ((np.zeros((2, 9)), 16_000), r"one row of floating-point samples from −1 to 1, not float64 \(2, 9\)"),
        ((np.zeros(9, np.int16), 16_000), "not int16"),
        (np.zeros(9), "a sound is a file, its bytes, or a pair of a waveform and its rate, .*, not array"),
        ((np.zeros(9),), "a pair of a waveform and its rate"),
        ((np.zeros(9), 0), "the rate of a waveform is a whole number of samples per second, not 0"),
    ):
        with pytest.raises(ValueError, match=message):
            read(sound, 16_000)


def test_a_clipped_sound_is_told() -> None:
    loud = np.clip(3 * TONE, -1, 1).astype(np.float32)
    assert clipped(TONE.astype(np.float32)) == 0 == clipped((2.4 * TONE).astype(np.float32)) and clipped(loud) > 0.1
    with pytest.warns(UserWarning, match="the waveform' is clipped: .* of its samples are in stretches at full scale"):
        read((loud, 48_000), 16_000)


def test_long_sounds_are_cut_where_they_are_quiet() -> None:
    wave = np.ones(1000, np.float32)
    wave[360:380] = wave[690:730] = 0
    assert pieces_of(wave, 1000, 400) == [(0, 370), (370, 700), (700, 1000)]
    assert pieces_of(wave[:400], 1000, 400) == [(0, 400)] and pieces_of(wave[:5], 1000, 2)[-1][1] == 5
