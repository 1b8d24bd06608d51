"""Drawings of detected objects: edges as shares of the picture, in the picture's proportions."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from qkv.runs.tasks.detection.picture import boxes


def test_boxes_stand_where_their_edges_are() -> None:
    truth = [{"name": "a < b", "color": "#123456", "box": (0.0, 0.5, 1.0, 1.0)}]
    made = [{"name": "cat", "color": "#123456", "score": 0.875, "box": (0.25, 0.25, 0.5, 0.75)}]
    shown = boxes({"image": "AA==", "size": (100, 200), "truth": truth, "made": made})
    tree = ET.fromstring(str(shown))
    space = "{http://www.w3.org/2000/svg}"
    image = tree.find(f"{space}image")
    assert image is not None
    width, height = float(image.attrib["width"]), float(image.attrib["height"])
    assert width == 2 * height
    dashed, solid = tree.findall(f"{space}rect")
    assert "stroke-dasharray" in dashed.attrib and dashed.attrib["y"] == f"{height / 2:g}"
    assert solid.attrib["stroke"] == "#123456" and float(solid.attrib["x"]) == width / 4
    assert float(solid.attrib["width"]) == width / 4 and float(solid.attrib["height"]) == height / 2
    assert "cat 0.88" in str(shown) and "a &lt; b" in str(shown)
