"""Detectors of the Hub, asked about pictures: what `transformers` makes of the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from qkv.cli import main
from qkv.io.directories.preprocessor import Within
from qkv.runs.inference.run import Run, load

transformers = pytest.importorskip("transformers", reason="objects are compared with Hugging Face's transformers")

CLASSES = ("N/A", "person", "bicycle", "car")
SHAPES = [(60, 90, 3), (120, 41, 3), (50, 50), (48, 140, 3)]


def pictures(folder: Path) -> list[Path]:
    random, paths = np.random.default_rng(1), []
    for number, shape in enumerate(SHAPES):
        Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)).save(path := folder / f"{number}.png")
        paths.append(path)
    return paths


def of_hub(folder: Path, **processor: Any) -> tuple[Any, Any, Run]:
    config = transformers.YolosConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=[32, 48],
        patch_size=8,
        num_detection_tokens=7,
        id2label=dict(enumerate(CLASSES)),
        label2id={name: i for i, name in enumerate(CLASSES)},
    )
    torch.manual_seed(2)
    theirs = transformers.YolosForObjectDetection(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    theirs.save_pretrained(folder)
    made = transformers.YolosImageProcessorPil(**processor)
    made.save_pretrained(folder)
    return theirs, made, load(folder, device="cpu")


@pytest.mark.parametrize(
    "size", [{"shortest_edge": 48, "longest_edge": 100}, {"height": 40, "width": 56}], ids=["proportions", "stretched"]
)
def test_objects_match_transformers(tmp_path: Path, size: dict[str, int]) -> None:
    theirs, processor, run = of_hub(tmp_path, size=size)
    paths = pictures(tmp_path)
    for path, one in zip(paths, run.predict(paths, threshold=0.3), strict=True):
        picture = Image.open(path).convert("RGB")
        with torch.no_grad():
            out = theirs(processor(picture, return_tensors="pt")["pixel_values"])
        (wanted,) = processor.post_process_object_detection(out, threshold=0.3, target_sizes=[picture.size[::-1]])
        order = wanted["scores"].argsort(descending=True)
        assert len(order) > 2
        assert [found.name for found in one.value] == [CLASSES[i] for i in wanted["labels"][order]]
        scores, boxes = ([getattr(found, part) for found in one.value] for part in ("score", "box"))
        torch.testing.assert_close(torch.tensor(scores), wanted["scores"][order], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(torch.tensor(boxes), wanted["boxes"][order], atol=1e-2, rtol=1e-4)


def test_older_files_say_two_numbers(tmp_path: Path) -> None:
    """As the files of `hustvl/yolos-tiny` do."""
    *_, run = of_hub(tmp_path, size={"shortest_edge": 48, "longest_edge": 100})
    paths = pictures(tmp_path)
    before = [one.value for one in run.predict(paths, threshold=0)]
    place = tmp_path / "preprocessor_config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "size": 48, "max_size": 100}))
    assert [one.value for one in run.predict(paths, threshold=0)] == before


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((480, 640), (800, 1056)), ((640, 480), (1056, 800)), ((300, 900), (432, 1328)), ((500, 500), (800, 800))],
)
def test_sizes_in_proportion(shape: tuple[int, int], wanted: tuple[int, int]) -> None:
    assert Within(800, 1333).of(shape) == wanted


def test_a_detector_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_hub(tmp_path, size={"shortest_edge": 48, "longest_edge": 100})
    path = pictures(tmp_path)[0]
    assert main(["predict", str(tmp_path), str(path), "--threshold", "0.3", "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{path}: ") and len(lines) > 2
    assert (tmp_path / "out" / "0.boxes.svg").read_text().count("<rect") >= len(lines) - 1
    assert main(["predict", str(tmp_path), str(path), "--threshold", "2"]) == 2
    assert "less than or equal to 1" in capsys.readouterr().err
