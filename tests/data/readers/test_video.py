"""Videos: tubelets in their places, frames from files, digits that move as they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
