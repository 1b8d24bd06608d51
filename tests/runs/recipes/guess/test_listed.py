"""Tables that name pictures, sounds or videos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from guessable_files import write
from PIL import Image

from qkv.data.source import SPLITS
from qkv.runs.recipes.guess import guess
from qkv.runs.recipes.recipe import Recipe


def test_a_table_of_pictures_is_no_table_of_texts(tmp_path: Path) -> None:
    for i in range(12):
        Image.new("RGB", (16, 16), (i, 0, 0)).save(tmp_path / f"{i}.png")
    table = write(tmp_path / "list.csv", "bild;klasse\n" + "".join(f"{i}.png;{'ab'[i % 2]}\n" for i in range(12)))
    found = guess(table)
    assert (
        found.recipe == "vit"
        and "data.image_column=bild" in found.settings
        and "data.label_column=klasse" in found.settings
    )
    assert Recipe.load(found.recipe, found.settings).data.table("train").labels
    gone = write(tmp_path / "gone.csv", "image,label\n" + "".join(f"x/{i}.png,{'ab'[i % 2]}\n" for i in range(12)))
    with pytest.raises(ValueError, match=r"'x/0.png', and they are not in .*data.images=FOLDER"):
        guess(gone)
    sounds = write(tmp_path / "s.csv", "path,label\n" + "".join(f"{i}.wav,{'ab'[i % 2]}\n" for i in range(12)))
    with pytest.raises(ValueError, match=r"'0.wav', and they are not in .*data.sounds=FOLDER"):
        guess(sounds)


def test_sounds_beside_the_folder_of_their_table(tmp_path: Path) -> None:
    """As in ESC-50: `meta/esc50.csv` names the files in `audio`."""
    for folder in ("audio", "meta"):
        (tmp_path / folder).mkdir()
    rows = [f"{i}-A.wav,{i % 5 + 1},{i % 2},{['dog', 'rain'][i % 2]},{i}" for i in range(20)]
    for row in rows:
        soundfile.write(tmp_path / "audio" / row.partition(",")[0], np.sin(np.arange(800) / 9), 8000)
    table = write(tmp_path / "meta" / "esc50.csv", "\n".join(["filename,fold,target,category,src_file", *rows]))
    for path in (table, tmp_path):
        found = guess(path)
        assert found.recipe == "speech" and f"they are in {tmp_path / 'audio'}" in found.seen[0]
        data = Recipe.load(found.recipe, found.settings).data
        tables = [data.table(split) for split in SPLITS]
        examples = [e for table in tables for e in map(table.__getitem__, range(len(table))) if e is not None]
        assert sorted((e["where"], e["label"]) for e in examples) == sorted(
            (r[: r.index(",")], r.split(",")[3]) for r in rows
        )
    video = write(tmp_path / "v.csv", "clip,class\n" + "".join(f"{i}.mp4,{'ab'[i % 2]}\n" for i in range(12)))
    (tmp_path / "audio" / "3.mp4").touch()
    assert {f"data.videos={tmp_path / 'audio'}", "data.video_column=clip"} <= set(guess(video).settings)
