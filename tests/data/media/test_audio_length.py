"""Sounds whose length is estimated, unknown or stated wrongly are read whole: PyAV (FFmpeg) decodes the same samples."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import soundfile

from qkv.data.media.audio import decode, duration
from qkv.data.source import Skipped

av = pytest.importorskip("av")

RATE = 44_100
TONE = 0.3 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
NOISE = np.random.default_rng(0).normal(0, 0.3, RATE).clip(-1, 1)


class Pipe:
    """What is written can't be changed later."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        self.data += bytes(data)
        return len(data)


def encoded(container: str, codec: str, wave: Any, rate: int = RATE, pipe: bool = False, **options: str) -> bytes:
    file: Any = Pipe() if pipe else io.BytesIO()
    quality = {name: options.pop(name) for name in ("global_quality", "flags") if name in options}
    with av.open(file, "w", format=container, options=options) as out:
        stream = out.add_stream(codec, rate=rate, options=quality)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(np.asarray(wave, np.float32)[None], format="fltp", layout="mono")
        frame.sample_rate = rate
        context = stream.codec_context
        resampler = av.AudioResampler(format=context.format, layout="mono", rate=rate, frame_size=context.frame_size)
        for part in (*resampler.resample(frame), *resampler.resample(None)):
            out.mux(stream.encode(part))
        out.mux(stream.encode(None))
    return bytes(file.data) if pipe else file.getvalue()


def mp3(wave: Any = TONE, rate: int = RATE, tag: bool = False, **options: str) -> bytes:
    return encoded("mp3", "mp3", wave, rate, write_xing=str(int(tag)), id3v2_version="0", **options)


def variable(wave: Any, **options: Any) -> bytes:
    return mp3(wave, global_quality="400", flags="+qscale", **options)


def by_av(data: bytes) -> np.ndarray:
    with av.open(io.BytesIO(data)) as file:
        wave = np.concatenate([frame.to_ndarray().reshape(-1) for frame in file.decode(audio=0)])
    return wave / 32768 if wave.dtype == np.int16 else wave


def assert_read_whole(data: bytes, begin: int = 0) -> None:
    """Equal from a sample on: the first frames after a cut need bits of earlier ones, which decoders replace differently."""
    found, wanted = decode(data), by_av(data)
    assert not isinstance(found, Skipped), found
    assert len(found[0]) == len(wanted)
    np.testing.assert_allclose(found[0][begin:], wanted[begin:], atol=1e-4)
    length = duration(data)
    assert length is not None and length[0] == pytest.approx(len(wanted) / found[1])


@pytest.mark.parametrize("rate", [44_100, 32_000, 22_050, 16_000, 11_025, 8_000])
@pytest.mark.parametrize("tag", [True, False])
def test_an_mp3_is_read_whole_with_and_without_a_tag(rate: int, tag: bool) -> None:
    assert_read_whole(mp3(TONE, rate, tag))


@pytest.mark.parametrize("wave", [(TONE * 0, NOISE), (NOISE, TONE * 0)], ids=["loud at the end", "loud at first"])
def test_an_mp3_of_variable_bit_rate_without_a_tag_is_read_whole(wave: Any) -> None:
    """Its estimated length is a fifth, or twice, the true one."""
    assert_read_whole(variable(np.concatenate(wave)))


def test_an_mp3_whose_first_frames_are_missing_is_read() -> None:
    data = mp3(NOISE)
    begin = data.index(data[:2], 400)
    assert_read_whole(data[data.index(data[:2], begin + 400) :], 3 * 1152)


def test_tags_of_titles_around_an_mp3_are_no_frames() -> None:
    data, title = mp3(), b"ID3\x03\0\0\0\0\x02\x00" + bytes(256)
    for tagged in (title + data, data + b"TAG" + bytes(125), title + title + data + b"TAG" + bytes(125)):
        assert_read_whole(tagged)


def test_joined_mp3_files_are_read_to_the_end() -> None:
    one, two = mp3(tag=True), mp3(NOISE, tag=True)
    sound = decode(one + two)
    assert not isinstance(sound, Skipped) and abs(len(sound[0]) - 2 * RATE) < 4 * 1152


@pytest.mark.parametrize("tag", [True, False])
@pytest.mark.parametrize("missing", [1, 60, 5000])
def test_an_mp3_that_is_cut_within_a_frame_is_truncated(tag: bool, missing: int) -> None:
    assert decode(mp3(NOISE, tag=tag)[:-missing]) == "truncated"


def test_other_mpeg_audio_is_read_whole() -> None:
    assert_read_whole(encoded("mp2", "mp2", TONE))
    assert_read_whole(encoded("wav", "mp3", TONE))


@pytest.mark.parametrize("container, codec", [("flac", "flac"), ("caf", "pcm_s16be"), ("au", "pcm_s16be")])
def test_what_was_written_to_a_pipe_is_read_whole(container: str, codec: str) -> None:
    assert_read_whole(encoded(container, codec, NOISE, pipe=True))
    assert_read_whole(encoded(container, codec, NOISE))


def test_aiff_and_wav_written_to_a_pipe_are_read_whole() -> None:
    for container, codec in (("aiff", "pcm_s16be"), ("wav", "pcm_s16le")):
        found = decode(encoded(container, codec, TONE, pipe=True))
        assert not isinstance(found, Skipped) and len(found[0]) == RATE


def test_flac_of_unknown_length_that_is_cut_is_skipped() -> None:
    data = encoded("flac", "flac", NOISE, pipe=True)
    assert all(isinstance(decode(data[:-missing]), Skipped) for missing in (1, 2, 100, 5000))


@pytest.mark.parametrize("codec, rate", [("VORBIS", 44_100), ("OPUS", 48_000)])
def test_ogg_streams_that_follow_one_another_are_all_read(codec: str, rate: int) -> None:
    file = io.BytesIO()
    soundfile.write(file, TONE, rate, codec, format="OGG")
    data = file.getvalue()
    one, both = decode(data), decode(data + data)
    assert not isinstance(one, Skipped) and not isinstance(both, Skipped)
    np.testing.assert_array_equal(both[0], np.tile(one[0], 2))
    assert decode(data + data[:-3]) == decode(data[:-3]) == "truncated"


def test_ogg_streams_of_several_rates_are_told() -> None:
    data = b""
    for rate in (8000, 16_000):
        file = io.BytesIO()
        soundfile.write(file, TONE, rate, "VORBIS", format="OGG")
        data += file.getvalue()
    assert decode(data) == "of several streams that differ in their sample rate"
