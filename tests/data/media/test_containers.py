"""Sound tracks of containers, with and without PyAV."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
import soundfile

from qkv.data.media.audio import decode, encode
from qkv.data.media.containers import is_container, is_ogg_video
from qkv.data.source import Skipped

TONE = (0.3 * np.sin(2 * np.pi * 440 * np.arange(8000) / 16_000)).astype(np.float32)


def remuxed(container: str, kind: str, subtype: str) -> bytes:
    """The tone in a container, coded by libsndfile."""
    av = pytest.importorskip("av", reason="PyAV is not installed")
    coded, file = io.BytesIO(), io.BytesIO()
    soundfile.write(coded, TONE, 16_000, subtype, format=kind)
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
    assert abs(spectrum.argmax() * rate / 6000 - 440) < 5


def test_without_pyav_videos_are_told_and_damaged_sounds_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(
        ValueError, match=r"reading the sound of 'x\.mp4' needs av, which is not installed: pip install"
    ):
        decode(b"\0\0\0\x20ftypisom" + bytes(100), "x.mp4")
    assert str(decode(b"OggS" + bytes(100))).startswith("no sound that can be read")


def test_containers_by_their_first_bytes() -> None:
    assert is_container(b"\0\0\0\x20ftypisom") and not is_container(b"\0\0\0\x20ftypavif")
    assert not is_container(encode(TONE, 16_000)) and not is_container(b"")
    theora = b"OggS" + bytes(24) + b"\x80theora"
    assert is_ogg_video(theora) and not is_ogg_video(b"OggS" + bytes(24) + b"OpusHead") and not is_ogg_video(theora[4:])
