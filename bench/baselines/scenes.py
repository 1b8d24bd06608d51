"""What one would try first for masks, boxes and captions: thresholds, mean layouts, frequent answers, and a small U-Net."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qkv.core.metrics.average_precision import average_precision
from qkv.core.metrics.intersection_over_union import ious
from qkv.data.media.images import decode, read
from qkv.data.readers.coco_voc import Voc
from qkv.data.readers.segmentation_masks import read_mask
from qkv.data.synthetic.shapes import Scenes

# -- masks of membranes, 0 and 255 ---------------------------------------------------------------------------------------


def _pairs(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Gray pictures 0 … 1 (n, H, W), and which pixels are cell."""
    paths = sorted(Path(folder, "image").iterdir())
    masks = [read_mask(Path(folder, "label", path.name)) > 127 for path in paths]
    return np.stack([read(path, "gray")[0] / np.float32(255) for path in paths]), np.stack(masks)


def _judged(name: str, made: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    confusion = np.bincount(2 * truth.ravel() + made.ravel(), minlength=4).reshape(2, 2)
    return {"name": name, "mIoU": float(np.nanmean(ious(confusion))), "pixel accuracy": float((made == truth).mean())}


def majority_mask(arguments: list[str]) -> dict[str, Any]:
    """The class of most training pixels, everywhere."""
    given = _folders(arguments)
    most, (images, truth) = _pairs(given.train)[1].mean() >= 0.5, _pairs(given.test)
    return _judged("majority class", np.full(images.shape, most), truth)


def threshold_mask(arguments: list[str]) -> dict[str, Any]:
    """Bright is cell: smoothing and threshold are those that give the best mIoU on the training pictures."""
    given = _folders(arguments)
    (images, masks), (others, truth) = _pairs(given.train), _pairs(given.test)
    tried = [(sigma, level) for sigma in (0, 1, 2, 3) for level in np.arange(0.2, 0.7, 0.02)]
    sigma, level = max(tried, key=lambda one: _judged("", _smooth(images, one[0]) > one[1], masks)["mIoU"])
    return _judged("best threshold after smoothing", _smooth(others, sigma) > level, truth)


def _smooth(images: np.ndarray, sigma: float) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    return images if not sigma else np.stack([gaussian_filter(image, sigma) for image in images])


def _folders(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("train", help="a folder with image/ and label/ in it")
    parser.add_argument("test")
    parser.add_argument("--minutes", type=float, default=4.0)
    return parser.parse_args(arguments)


class UNet(nn.Module):
    """Three resolutions, two convolutions at each, and what was seen on the way down beside what goes up (Ronneberger et al.
    2015), in small."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList([_twice(1, width), _twice(width, 2 * width), _twice(2 * width, 4 * width)])
        self.up = nn.ModuleList([_twice(6 * width, 2 * width), _twice(3 * width, width)])
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            seen.append(x)
        for block, beside in zip(self.up, seen[-2::-1], strict=True):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), beside], 1))
        return self.out(x)


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for n in (inputs, outputs):
        parts += [nn.Conv2d(n, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*parts)


def unet_mask(arguments: list[str]) -> dict[str, Any]:
    """The small U-Net, with crops of 128 turned around by chance, AdamW and a cosine over the time given."""
    given = _folders(arguments)
    (images, masks), (others, truth) = _pairs(given.train), _pairs(given.test)
    torch.manual_seed(0)
    random, model = np.random.default_rng(0), UNet()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01)
    began, limit = time.monotonic(), 60 * given.minutes
    while (share := (time.monotonic() - began) / limit) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (0.01 + 0.99 * (1 + np.cos(np.pi * share)) / 2)
        x, y = _crops(images, masks, random)
        loss = F.cross_entropy(model((x - 0.5) / 0.2), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        made = [model((torch.from_numpy(image)[None, None] - 0.5) / 0.2).argmax(1)[0].numpy() for image in others]
    return _judged(f"small U-Net, {given.minutes:g} minutes", np.stack(made) == 1, truth)


def _crops(images: np.ndarray, masks: np.ndarray, random: np.random.Generator, side: int = 128, rows: int = 8) -> Any:
    xs: list[np.ndarray] = []
    ys: list[np.ndarray] = []
    for _ in range(rows):
        n = random.integers(len(images))
        top, left = random.integers(images.shape[1] - side + 1, size=2)
        turns, flips = int(random.integers(4)), random.random() < 0.5
        for found, whole in ((xs, images), (ys, masks)):
            part = np.rot90(whole[n, top : top + side, left : left + side], turns)
            found.append((part[:, ::-1] if flips else part).copy())
    return torch.from_numpy(np.stack(xs))[:, None], torch.from_numpy(np.stack(ys)).long()


# -- boxes of blood cells ------------------------------------------------------------------------------------------------


def mean_layout(arguments: list[str]) -> dict[str, Any]:
    """The same boxes in every picture: of each class as many as a training picture has of it on average, at the centers of
    so many clusters of its training boxes, the fuller the surer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", help="a folder or .tar in VOC's form")
    source = Voc(path=parser.parse_args(arguments).path)
    train = list(source.examples("train", shuffle=False))
    names = sorted({name for one in train for name in one["names"]})
    layout = [entry for k, name in enumerate(names, 1) for entry in _clusters(train, name, k)]
    images: list[dict[str, Any]] = []
    truths: list[dict[str, Any]] = []
    made: list[dict[str, Any]] = []
    for number, one in enumerate(source.examples("test", shuffle=False), 1):
        data = one["image"].read_bytes() if isinstance(one["image"], Path) else one["image"]
        height, width = decode(data).shape[1:]  # type: ignore[union-attr]
        images.append({"id": number, "height": height, "width": width})
        made += [{"image_id": number, **entry} for entry in layout]
        for name, box in zip(one["names"], one["boxes"], strict=True):
            entry = _entry(np.array(box), names.index(name) + 1)
            if entry["area"] > 0:
                truths.append({"image_id": number, "id": len(truths) + 1, "iscrowd": 0, **entry})
    precision = average_precision(images, truths, made, len(names))
    return {"name": "mean layout of the training boxes", "AP": precision[0], "AP50": precision[1]}


def _clusters(train: list[dict[str, Any]], name: str, number: int) -> list[dict[str, Any]]:
    from scipy.cluster.vq import kmeans2

    boxes = np.array([box for one in train for n, box in zip(one["names"], one["boxes"], strict=True) if n == name])
    count = max(1, round(len(boxes) / len(train)))
    centers, of = kmeans2(boxes, count, minit="++", seed=0)
    return [_entry(box, number) | {"score": float((of == k).mean())} for k, box in enumerate(centers)]


def _entry(box: np.ndarray, number: int) -> dict[str, Any]:
    width, height = (float(side) for side in box[2:] - box[:2])
    return {"category_id": number, "bbox": [float(box[0]), float(box[1]), width, height], "area": width * height}


# -- made captions -------------------------------------------------------------------------------------------------------


def frequent_answer(arguments: list[str]) -> dict[str, Any]:
    """To every question the answer that it has most often in training, and of every picture the most frequent caption."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", type=int, default=48)
    source = Scenes(size=(parser.parse_args(arguments).side,) * 2)
    said: dict[str, Counter[str]] = {}
    for one in source.examples("train", shuffle=False):
        said.setdefault(one["question"], Counter())[one["answer"]] += 1
    right: dict[bool, list[bool]] = {True: [], False: []}
    for one in source.examples("test", shuffle=False):
        guess = said[one["question"]].most_common(1)[0][0] if one["question"] in said else ""
        right[bool(one["question"])].append(guess == one["answer"])
    shares = {"exact": right[True] + right[False], "exact answers": right[True], "exact captions": right[False]}
    return {"name": "most frequent answer to each question"} | {k: float(np.mean(v)) for k, v in shares.items()}


COMMANDS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "majority-mask": majority_mask,
    "threshold-mask": threshold_mask,
    "unet-mask": unet_mask,
    "mean-layout": mean_layout,
    "frequent-answer": frequent_answer,
}
