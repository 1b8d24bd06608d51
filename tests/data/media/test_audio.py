"""Waveforms and spectrograms: files of every depth, and the filters of an independent implementation."""

from __future__ import annotations

import io
import math
import sys
import wave

import numpy as np
import pytest
import soundfile

from qkv.data.media.audio import MOST_SAMPLES, decode, encode, resampled
from qkv.data.source import Skipped

TONE = (0.5 * np.sin(2 * np.pi * 440 * np.arange(800) / 8000)).astype(np.float32)


def written(width: int, channels: int = 1, rate: int = 8000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        whole = np.repeat((TONE.astype(np.float64) * (2 ** (8 * width - 1) - 1)).round().astype(np.int64), channels)
        if width == 1:
            out.writeframes((whole + 128).astype(np.uint8).tobytes())
        else:
            out.writeframes(b"".join(int(x).to_bytes(width, "little", signed=True) for x in whole))
    return file.getvalue()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_depth_gives_the_same_sound(width: int, channels: int) -> None:
    found = decode(written(width, channels))
    assert not isinstance(found, Skipped)
    assert found[1] == 8000 and found[0].shape == (800,)
    np.testing.assert_allclose(found[0], TONE, atol=1.5 / 2 ** (8 * width - 1))


@pytest.mark.parametrize("width", [2, 3])
def test_an_extensible_header_is_read(width: int) -> None:
    """Its `fmt ` has 40 bytes: the form 0xFFFE, and whole numbers (1) or fractions (3) at the head of a GUID."""
    plain = written(width)
    size, form, rest = int.from_bytes(plain[4:8], "little") + 24, plain[20:36], plain[36:]
    for code in (1, 3):
        guid = code.to_bytes(2, "little") + bytes.fromhex("000000001000800000aa00389b71")
        more = (22).to_bytes(2, "little") + (8 * width).to_bytes(2, "little") + (4).to_bytes(4, "little") + guid
        head = plain[:4] + size.to_bytes(4, "little") + plain[8:16] + (40).to_bytes(4, "little")
        found = decode(head + b"\xfe\xff" + form[2:] + more + rest)
        if code == 1:
            assert not isinstance(found, Skipped)
            np.testing.assert_allclose(found[0], TONE, atol=1.5 / 2 ** (8 * width - 1))
        else:
            assert isinstance(found, Skipped) and "no sound that can be read" in found  # of fewer than 32 bits


def test_what_is_written_is_read() -> None:
    found = decode(encode(TONE, 16_000))
    assert not isinstance(found, Skipped) and found[1] == 16_000
    np.testing.assert_allclose(found[0], TONE, atol=1e-4)


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "empty"),
        (b"no sound at all", "no sound that can be read (Format not recognised)"),
        (b"RIFF", "no sound that can be read"),
        (written(2)[:200], "truncated"),
        (encode(np.zeros(0, np.float32), 8000), "without sound"),
    ],
)
def test_what_is_no_sound_is_skipped_with_a_reason(data: bytes, why: str) -> None:
    found = decode(data)
    assert isinstance(found, Skipped) and why in found


@pytest.mark.parametrize(
    ("kind", "coding", "error"),
    [
        *(("WAV", "FLOAT", 0), ("WAV", "DOUBLE", 0), ("WAVEX", "PCM_24", 1e-6), ("RF64", "PCM_16", 1e-4)),
        *(("FLAC", "PCM_24", 1e-6), ("OGG", "VORBIS", 0.05), ("MP3", "MPEG_LAYER_III", 0.05), ("AIFF", "PCM_16", 1e-4)),
    ],
)
def test_formats_of_libsndfile_are_read_and_halves_of_them_are_not(kind: str, coding: str, error: float) -> None:
    file = io.BytesIO()
    soundfile.write(file, TONE, 8000, coding, format=kind)
    found = decode(file.getvalue())
    assert not isinstance(found, Skipped) and found[1] == 8000
    np.testing.assert_allclose(found[0], TONE, atol=error)
    assert isinstance(decode(file.getvalue()[: len(file.getvalue()) // 2]), Skipped)


@pytest.mark.parametrize(
    ("kind", "coding", "error"),
    [
        *(("WAV", "PCM_U8", 0.02), ("WAV", "PCM_24", 1e-6), ("WAV", "PCM_32", 1e-6), ("WAV", "ULAW", 0.05)),
        *(("WAV", "ALAW", 0.05), ("WAV", "IMA_ADPCM", 0.2), ("WAV", "MS_ADPCM", 0.2), ("W64", "PCM_16", 1e-4)),
        *(("OGG", "OPUS", 0.2), ("AU", "PCM_16", 1e-4), ("CAF", "ALAC_16", 1e-4)),
    ],
)
def test_more_codings_are_read(kind: str, coding: str, error: float) -> None:
    if coding not in soundfile.available_subtypes(kind):
        pytest.skip(f"this libsndfile has no {coding}")
    file = io.BytesIO()
    soundfile.write(file, TONE, 8000, coding, format=kind)
    found = decode(file.getvalue())
    assert not isinstance(found, Skipped) and found[1] == 8000
    np.testing.assert_allclose(found[0][20 : len(TONE)], TONE[20:], atol=error)  # ADPCM adapts to the sound


@pytest.mark.parametrize("size", [0xFFFF_FFFF, 0x7FFF_FFFF, 0x7FFF_F000])
def test_a_wav_file_from_a_pipe_is_read_to_its_end(size: int) -> None:
    plain, said = written(2), size.to_bytes(4, "little")
    found = decode(plain[:4] + said + plain[8:40] + said + plain[44:])
    assert not isinstance(found, Skipped) and found[0].shape == (800,)


def test_long_chunks_before_the_samples_are_passed_over() -> None:
    plain, more = written(2), b"LIST" + (9000).to_bytes(4, "little") + bytes(9000)
    found = decode(plain[:12] + more + plain[12:])
    assert not isinstance(found, Skipped) and found[0].shape == (800,)
    past = plain[:36] + b"LIST" + (1 << 30).to_bytes(4, "little") + plain[36:]
    assert isinstance(decode(past), Skipped)


def test_rates_lengths_and_values_that_no_sound_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = written(2)
    assert "of a rate outside" in str(decode(plain[:24] + (0x7FFF_FFFF).to_bytes(4, "little") + plain[28:]))
    assert "of a rate outside" in str(decode(plain[:24] + (1).to_bytes(4, "little") + plain[28:]))
    assert isinstance(decode(plain[:22] + b"\xff\xff" + plain[24:]), Skipped)  # channels
    for value in (math.nan, math.inf, 1e30):
        file = io.BytesIO()
        soundfile.write(file, np.array([0, value]), 8000, "FLOAT", format="WAV")
        assert "no numbers" in str(decode(file.getvalue()))
    assert MOST_SAMPLES >= 13 * 60 * 44_100 * 2  # 13 minutes of stereo
    monkeypatch.setattr("qkv.data.media.audio.MOST_SAMPLES", 799)
    assert decode(plain) == "longer than 799 samples"


def test_resampling_keeps_the_tone() -> None:
    up = resampled(TONE, 8000, 16_000)
    assert len(up) == 1600
    time = np.arange(1600) / 16_000
    np.testing.assert_allclose(up[200:1400], 0.5 * np.sin(2 * np.pi * 440 * time)[200:1400], atol=0.01)


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_an_ogg_file_that_ends_early_is_truncated(subtype: str) -> None:
    """libsndfile reads the pages that are there, and says nothing of those that are missing."""
    file = io.BytesIO()
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 48_000 * 4).astype(np.float32)
    soundfile.write(file, noise, 48_000, format="OGG", subtype=subtype)
    data = file.getvalue()
    assert not isinstance(decode(data), Skipped)
    assert not isinstance(decode(data + b"more"), Skipped)
    last = data.rfind(b"OggS")
    for size in (last, last + 10, last + 40, len(data) - 1, len(data) // 2):
        assert isinstance(decode(data[:size]), Skipped), size
    assert decode(data[:last]) == "truncated"


@pytest.mark.parametrize("rate", [48_000, 44_100, 22_050])
def test_resampling_keeps_the_passband_and_loses_what_would_alias(rate: int) -> None:
    time, wanted = np.arange(rate) / rate, 16_000
    inner = slice(wanted // 10, -wanted // 10)
    for frequency in (100, 3000, 7200):
        tone = np.sin(2 * np.pi * frequency * time).astype(np.float32)
        exact = np.sin(2 * np.pi * frequency * np.arange(wanted) / wanted)
        assert np.abs(resampled(tone, rate, wanted) - exact)[inner].max() < 1e-4
    for frequency in (8020, 9000, 10_900):
        tone = np.sin(2 * np.pi * frequency * time).astype(np.float32)
        assert np.abs(resampled(tone, rate, wanted))[inner].max() < 1e-4, frequency  # −80 dB


def remuxed(container: str, kind: str, subtype: str) -> bytes:
    """The tone in a container, coded by libsndfile."""
    av = pytest.importorskip("av", reason="PyAV is not installed")
    coded, file = io.BytesIO(), io.BytesIO()
    soundfile.write(coded, np.tile(TONE, 10), 16_000, subtype, format=kind)
    coded.seek(0)
    with av.open(coded) as given, av.open(file, "w", format=container) as out:
        stream = out.add_stream_from_template(given.streams.audio[0])
        for packet in given.demux(audio=0):
            if packet.dts is not None:
                packet.stream = stream
                out.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize(
    "container, kind, subtype",
    [("mp4", "MP3", "MPEG_LAYER_III"), ("matroska", "WAV", "PCM_16"), ("ogg", "FLAC", "PCM_16")],
)
def test_every_reader_of_sounds_reads_sound_tracks(container: str, kind: str, subtype: str) -> None:
    data = remuxed(container, kind, subtype)
    sound = decode(data)
    assert not isinstance(sound, Skipped)
    wave, rate = sound
    assert rate == 16_000 and abs(len(wave) - 8000) < 1300
    spectrum = np.abs(np.fft.rfft(wave[1500:7500] * np.hanning(6000)))
    assert abs(spectrum.argmax() * rate / 6000 - 880) < 5


def test_without_pyav_videos_are_told_and_damaged_sounds_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(
        ValueError, match=r"reading the sound of 'x\.mp4' needs av, which is not installed: pip install"
    ):
        decode(b"\0\0\0\x20ftypisom" + bytes(100), "x.mp4")
    assert str(decode(b"OggS" + bytes(100))).startswith("no sound that can be read")
