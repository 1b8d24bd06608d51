"""What one would try first for stained blood cells: thresholds of color, and what hangs together above them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from qkv.core.metrics.average_precision import average_precision
from qkv.data.media.images import decode
from qkv.data.readers.coco_voc import Voc

NAMES = ("Platelets", "RBC", "WBC")
_SEARCHED = 30  # training pictures that thresholds are chosen on


class Picture(NamedTuple):
    """What thresholds are of, (H, W) each, and the truth."""

    purple: NDArray[np.float32]  # how much less green than red and blue: stained nuclei and platelets
    dark: NDArray[np.float32]  # how much less green than the background, which is the commonest: all cells
    names: list[str]
    boxes: NDArray[np.float64]


class Levels(NamedTuple):
    """Where the stain begins, where cells begin, and by how many pixels cells that touch are taken apart."""

    purple: float
    dark: float
    apart: int


def color_components(arguments: list[str]) -> dict[str, Any]:
    """Connected pieces of purple are white cells or, if small, platelets; other dark ones, thinned to fall apart, are
    red cells. Levels have the best AP50 on some training pictures, and a piece is the surer the nearer its
    sides are to the medians of its class's boxes there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", help="a folder or .tar in VOC's form")
    source = Voc(path=parser.parse_args(arguments).path)
    train = _pictures(list(source.examples("train", shuffle=False))[:_SEARCHED])
    sides = {name: np.median([_sides(b) for one in train for n, b in _named(one) if n == name], 0) for name in NAMES}
    grid = product((30, 45, 60, 75), (10, 20, 30, 40), (3, 8, 13, 18))
    tried = [Levels(*levels) for levels in grid]
    best = max(tried, key=lambda levels: _judged(train, levels, sides)[1])
    ap, ap50 = _judged(_pictures(list(source.examples("test", shuffle=False))), best, sides)
    return {"name": "color thresholds and connected components", "AP": ap, "AP50": ap50}


def _pictures(examples: list[dict[str, Any]]) -> list[Picture]:
    found = []
    for one in examples:
        data = one["image"].read_bytes() if isinstance(one["image"], Path) else one["image"]
        red, green, blue = (ndimage.gaussian_filter(c.astype(np.float32), 2) for c in decode(data))  # type: ignore[union-attr]
        background = np.bincount(green.astype(int).ravel()).argmax()
        found.append(Picture((red + blue) / 2 - green, background - green, one["names"], np.array(one["boxes"], float)))
    return found


def _named(one: Picture) -> list[tuple[str, NDArray[np.float64]]]:
    return [(n, b) for n, b in zip(one.names, one.boxes, strict=True) if (_sides(b) > 0).all()]


def _sides(box: NDArray[np.float64]) -> NDArray[np.float64]:
    return box[2:] - box[:2]


def _judged(pictures: list[Picture], levels: Levels, sides: dict[str, NDArray[np.float64]]) -> tuple[float, float]:
    images, truths, made = [], [], []
    for number, one in enumerate(pictures, 1):
        images.append({"id": number, "height": one.purple.shape[0], "width": one.purple.shape[1]})
        for name, box in _named(one):
            truths.append({"id": len(truths) + 1, "image_id": number, "iscrowd": 0, **_entry(name, box)})
        for name, box in _pieces(one, levels, sides):
            off = np.abs(np.log(_sides(box) / sides[name])).sum()
            made.append({"image_id": number, "score": float(np.exp(-off)), **_entry(name, box)})
    return average_precision(images, truths, made, len(NAMES)) if made else (0.0, 0.0)


def _pieces(one: Picture, levels: Levels, sides: dict[str, NDArray[np.float64]]) -> list[tuple[str, Any]]:
    stained = ndimage.binary_closing(one.purple > levels.purple, iterations=3)
    found = []
    limit = np.sqrt(sides["Platelets"].prod() * sides["WBC"].prod())  # of area, between the two
    for box in _boxes(stained, 8):
        found.append(("WBC" if _sides(box).prod() > limit else "Platelets", box))
    cells = ndimage.binary_fill_holes((one.dark > levels.dark) & ~ndimage.binary_dilation(stained, iterations=3))
    for box in _boxes(ndimage.distance_transform_edt(cells) > levels.apart, 8):
        grown = box + levels.apart * np.array([-1, -1, 1, 1])
        found.append(("RBC", np.clip(grown, 0, [*one.dark.shape[::-1]] * 2)))
    return found


def _boxes(mask: NDArray[np.bool_], least: int) -> list[NDArray[np.float64]]:
    """Around each connected piece that is at least so wide and high."""
    pieces = ndimage.find_objects(ndimage.label(mask)[0])
    boxes = [np.array([x.start, y.start, x.stop, y.stop], float) for y, x in pieces]
    return [box for box in boxes if _sides(box).min() >= least]


def _entry(name: str, box: NDArray[np.float64]) -> dict[str, Any]:
    width, height = _sides(box).tolist()
    return {
        "category_id": NAMES.index(name) + 1,
        "bbox": [float(box[0]), float(box[1]), width, height],
        "area": width * height,
    }


COMMANDS: dict[str, Callable[[list[str]], dict[str, Any]]] = {"color-components": color_components}
