"""Videos: tubelets in their places, frames from files, digits that move as they say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qkv.data.readers.video import Clips
from qkv.data.source import Counts, read


def animated(path: Path, frames: int, side: int = 6) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [Image.new("L", (side, side), 20 * i) for i in range(frames)]
    made[0].save(path, save_all=True, append_images=made[1:])


def test_animated_files_are_videos(tmp_path: Path) -> None:
    for i in range(6):
        animated(tmp_path / "ab"[i % 2] / f"{i}.gif", 4)
    (tmp_path / "a" / "broken.gif").write_bytes(b"GIF89a")
    source = Clips(path=str(tmp_path), test_path=str(tmp_path), validation_path=str(tmp_path), color="gray")
    counts, table = Counts(), source.table("train")
    found = read(table, range(len(table)), counts)
    assert [e["video"].shape for e in found] == [(4, 1, 6, 6)] * 6 and counts.skipped.total() == 1
    np.testing.assert_allclose(found[0]["video"].mean((1, 2, 3)), [0, 20, 40, 60], atol=2)
    assert source.table("train").labels.count("b") == 3


def mp4(frames: int) -> bytes:
    av: Any = pytest.importorskip("av", reason="PyAV is not installed")
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for i in range(frames):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((32, 32, 3), i, np.uint8), format="rgb24")))
        file.mux(stream.encode())
    return out.getvalue()


def test_videos_beside_animated_pictures(tmp_path: Path) -> None:
    animated(tmp_path / "a" / "0.gif", 4, 32)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.mp4").write_bytes(mp4(5))
    source = Clips(path=str(tmp_path), test_path=str(tmp_path), validation_path=str(tmp_path))
    found = read(source.table("train"), range(2), Counts())
    assert sorted((e["label"], e["video"].shape) for e in found) == [("a", (4, 3, 32, 32)), ("b", (5, 3, 32, 32))]
    assert not any("of one frame" in note for note in source.notes())


def test_pictures_among_videos_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.mp4").write_bytes(b"not decoded here")
    Image.new("L", (32, 32)).save(tmp_path / "a" / "thumbnail.jpg")
    notes = Clips(path=str(tmp_path), test_path=str(tmp_path), validation_path=str(tmp_path)).notes()
    assert notes[-1].startswith("pictures beside videos (1 of 2 files) are read as videos of one frame")
