"""Videos as arrays: decoded frames, sampling, and tubelets."""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from qkv.data.media.video import decode_frames, evenly, is_container, is_ogg_video, tubelets
from qkv.data.source import Skipped
from qkv.nn.layers.patches import patchify


def test_patches_of_the_laid_out_frames_are_tubelets() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 4), np.uint8)
    laid = tubelets(frames, 2)
    assert laid.shape == (6, 24, 4)
    patches = patchify(torch.from_numpy(laid)[None], (4, 4))[0].reshape(3, 2, 1, 2, 3, 4, 4)  # (time, row, column, …)
    for t, r in np.ndindex(3, 2):
        np.testing.assert_array_equal(patches[t, r, 0], frames[2 * t : 2 * t + 2, :, 4 * r : 4 * r + 4])


@pytest.mark.parametrize(("n", "count", "wanted"), [(8, 4, [1, 3, 5, 7]), (3, 6, [0, 0, 1, 1, 2, 2]), (5, 1, [2])])
def test_frames_are_taken_evenly(n: int, count: int, wanted: list[int]) -> None:
    assert evenly(np.arange(n, dtype=np.uint8)[:, None, None, None], count).ravel().tolist() == wanted


def animated(path: Path, frames: int, side: int = 6) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [Image.new("L", (side, side), 20 * i) for i in range(frames)]
    made[0].save(path, save_all=True, append_images=made[1:])


def test_a_video_is_refused_by_all_its_pixels(tmp_path: Path) -> None:
    animated(tmp_path / "x.gif", 5)
    data = (tmp_path / "x.gif").read_bytes()
    assert decode_frames(data, "gray", 179) == "larger than 179 pixels"
    assert not isinstance(decode_frames(data, "gray", 180), Skipped)


def test_pages_of_sixteen_bits_are_frames() -> None:
    made = [Image.fromarray(np.full((2, 2), 256 * value, np.uint16)) for value in (10, 200)]
    file = io.BytesIO()
    made[0].save(file, "TIFF", save_all=True, append_images=made[1:])
    found = decode_frames(file.getvalue(), "gray")
    assert not isinstance(found, Skipped) and found[:, 0, 0, 0].tolist() == [10, 200]


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF"])
def test_what_is_transparent_in_a_frame_lies_on_white(kind: str) -> None:
    made = [Image.new("RGBA", (4, 4), (255, 0, 0, alpha)) for alpha in (255, 0)]
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    if kind == "GIF":
        made = [Image.new("P", (4, 4), number) for number in (1, 0)]
        for image in made:
            image.putpalette([0, 0, 255, 255, 0, 0])
        made[0].putpixel((0, 0), 0)
        options = {"transparency": 0, "disposal": 2}
    file = io.BytesIO()
    made[0].save(file, kind, save_all=True, append_images=made[1:], **options)
    found = decode_frames(file.getvalue())
    assert not isinstance(found, Skipped)
    assert found[0, :, 1, 1].tolist() == [255, 0, 0] and found[-1, :, 1, 1].tolist() == [255, 255, 255]


def test_frames_of_an_animation_are_laid_over_one_another() -> None:
    """The second changes one pixel, the third comes after a frame that is taken away (disposal 2)."""
    first, second = Image.new("RGB", (3, 3), "red"), Image.new("RGB", (3, 3), "red")
    second.putpixel((1, 1), (0, 0, 255))
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=[second], disposal=1)
    found = decode_frames(file.getvalue())
    assert not isinstance(found, Skipped) and len(found) == 2
    assert found[1, :, 0, 0].tolist() == [255, 0, 0] and found[1, :, 1, 1].tolist() == [0, 0, 255]


def test_pages_of_several_sizes_and_too_many_frames_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Image.new("L", (side, side)) for side in (2, 3)]
    file = io.BytesIO()
    made[0].save(file, "TIFF", save_all=True, append_images=made[1:])
    assert decode_frames(file.getvalue()) == "of frames that differ in size"
    assert decode_frames(file.getvalue(), most=12) == "larger than 12 pixels"
    monkeypatch.setattr("qkv.data.media.images.MOST_FRAMES", 1)
    assert decode_frames(file.getvalue()) == "of more than 1 frames"


def encoded(container: str, codec: str, frames: int, side: int = 32, pipe: bool = False, **options: str) -> bytes:
    """A video that grows brighter, from 0 to 200."""
    av: Any = pytest.importorskip("av", reason="PyAV is not installed")
    out = io.BytesIO()
    target: Any = SimpleNamespace(write=out.write) if pipe else out
    with av.open(target, "w", format=container, options=options) as file:
        try:
            stream = file.add_stream(codec, rate=10)
        except ValueError:
            pytest.skip(f"this PyAV has no encoder {codec}")
        stream.width = stream.height = side
        stream.pix_fmt = "yuv420p"
        for i in range(frames):
            pixels = np.full((side, side, 3), 200 * i // max(frames - 1, 1), np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode())
    return out.getvalue()


@pytest.mark.parametrize(
    ("container", "codec"),
    [("mp4", "mpeg4"), ("mov", "mpeg4"), ("avi", "mpeg4"), ("webm", "libvpx"), ("matroska", "mpeg4")],
)
def test_videos_of_every_container(container: str, codec: str) -> None:
    data = encoded(container, codec, 6)
    frames, gray = decode_frames(data), decode_frames(data, "gray")
    assert not isinstance(frames, Skipped) and not isinstance(gray, Skipped)
    assert frames.shape == (6, 3, 32, 32) and gray.shape == (6, 1, 32, 32) and frames.dtype == np.uint8
    np.testing.assert_allclose(frames.mean((1, 2, 3)), np.arange(6) * 40, atol=8)


def test_long_videos_are_thinned_evenly() -> None:
    data = encoded("mp4", "mpeg4", 41)
    frames = decode_frames(data, most=12 * 32 * 32)
    assert not isinstance(frames, Skipped) and len(frames) == 11  # every fourth of 41
    np.testing.assert_allclose(frames.mean((1, 2, 3)), np.arange(11) * 20, atol=8)
    assert decode_frames(data, most=1023) == "larger than 1,023 pixels"


def test_damaged_videos_are_skipped() -> None:
    data = encoded("mp4", "mpeg4", 6)
    assert str(decode_frames(data[:200])) == "truncated"
    assert str(decode_frames(b"\x1a\x45\xdf\xa3" + bytes(500))).startswith("no video that can be read")


def test_videos_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(
        ValueError, match=r"reading 'x\.mp4' needs av, which is not installed: pip install 'qkv\[video\]'"
    ):
        decode_frames(b"\0\0\0\x20ftypisom" + bytes(100), where="x.mp4")


FRAGMENTS = {"movflags": "frag_keyframe+empty_moov"}


@pytest.mark.parametrize(
    "container, codec, options",
    [("mp4", "mpeg4", FRAGMENTS), ("matroska", "mpeg4", {}), ("avi", "mpeg4", {}), ("flv", "flv1", {})],
)
def test_a_video_that_is_cut_is_truncated_and_not_a_shorter_one(
    container: str, codec: str, options: dict[str, str]
) -> None:
    data = encoded(container, codec, 30, **options)
    whole = decode_frames(data)
    assert not isinstance(whole, Skipped) and len(whole) == 30
    assert {str(decode_frames(data[: int(len(data) * share)])) for share in (0.6, 0.7, 0.9)} == {"truncated"}


@pytest.mark.parametrize("container", ["matroska", "avi"])
def test_a_video_written_to_a_pipe_states_no_end_and_is_read(container: str) -> None:
    whole = decode_frames(encoded(container, "mpeg4", 10, pipe=True))
    assert not isinstance(whole, Skipped) and len(whole) == 10


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_video_is_turned_as_its_file_says(turns: int) -> None:
    """The matrix of a track (ISO 14496-12, section 6.2.2) turns it clockwise: (x, y) is shown at (a x + c y, b x + d y)."""
    av: Any = pytest.importorskip("av", reason="PyAV is not installed")
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv420p"
        pixels = np.zeros((32, 64, 3), np.uint8)
        pixels[:16, :16] = 255  # at the top left
        file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode())
    data = bytearray(out.getvalue())
    at = data.index(b"tkhd") + 4 + 40
    a, b, c, d = ((1, 0, 0, 1), (0, 1, -1, 0), (-1, 0, 0, -1), (0, -1, 1, 0))[turns]
    data[at : at + 36] = struct.pack(">9i", a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
    frames = decode_frames(bytes(data), "gray")
    assert not isinstance(frames, Skipped)
    assert frames.shape == ((1, 1, 32, 64), (1, 1, 64, 32))[turns % 2]
    rows, columns = np.nonzero(frames[0, 0] > 128)
    corner = rows.mean() > frames.shape[2] / 2, columns.mean() > frames.shape[3] / 2
    assert corner == ((False, False), (False, True), (True, True), (True, False))[turns]


def test_containers_by_their_first_bytes() -> None:
    assert is_container(b"\0\0\0\x20ftypisom") and not is_container(b"\0\0\0\x20ftypavif")
    assert not is_container(b"RIFF\0\0\0\0WAVE") and not is_container(b"")
    theora = b"OggS" + bytes(24) + b"\x80theora"
    assert is_ogg_video(theora) and not is_ogg_video(b"OggS" + bytes(24) + b"OpusHead") and not is_ogg_video(theora[4:])
