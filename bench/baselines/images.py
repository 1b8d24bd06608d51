"""What one would try first for pictures: the nearest neighbor, a linear layer, and a small convolutional network."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qkv.data.media.images import normalized, statistics
from qkv.data.readers.images import Images, ImageSource
from qkv.data.readers.mnist_idx import Idx
from qkv.data.source import Source, Split
from qkv.data.synthetic.moving_digits import MovingDigits

Set = tuple[Tensor, Tensor]  # pictures (n, C, H, W), normalized, and the number of each one's class


def _sets(arguments: list[str]) -> tuple[Set, Set, argparse.Namespace]:
    """All training pictures and all of the test set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", help="what the sources idx (a folder of IDX files) or images (all else) read")
    parser.add_argument("test", nargs="?", help="the same for the test set, where it is not in the first")
    parser.add_argument("--kind", choices=["idx", "images"], default="images")
    parser.add_argument("--minutes", type=float, default=4.0)
    given = parser.parse_args(arguments)
    source: ImageSource = (Idx if given.kind == "idx" else Images)(path=given.path, test_path=given.test)
    return *_arrays(source, "image"), given


def _arrays(source: Source, name: str, most: int = 1 << 30) -> tuple[Set, Set]:
    found: dict[Split, tuple[np.ndarray, list[str]]] = {}
    for split in ("train", "test"):
        examples = list(source.examples(split, shuffle=False))[:most]
        found[split] = np.stack([one[name] for one in examples]), [one["label"] for one in examples]
    classes = sorted(set(found["train"][1]))
    pixels = found["train"][0]
    flat = pixels.reshape(len(pixels), -1, *pixels.shape[-2:])
    mean, std = statistics(list(flat[:2000]))
    sets = []
    for pictures, labels in found.values():
        numbers = normalized(pictures.reshape(len(pictures), -1, *pictures.shape[-2:]), mean, std)
        sets.append((torch.from_numpy(numbers), torch.tensor([classes.index(label) for label in labels])))
    return sets[0], sets[1]


def nearest(arguments: list[str]) -> dict[str, Any]:
    """The class of the training picture with the least distance in pixels."""
    (pictures, labels), (others, truth), _ = _sets(arguments)
    flat = pictures.flatten(1)
    squares = flat.square().sum(1)
    said = [labels[(squares - 2 * part.flatten(1) @ flat.T).argmin(1)] for part in others.split(500)]
    return {"name": "nearest neighbor in pixels", "accuracy": float((torch.cat(said) == truth).float().mean())}


def linear(arguments: list[str]) -> dict[str, Any]:
    """Multinomial logistic regression on the pixels, λ = 1 (L-BFGS)."""
    train, test, _ = _sets(arguments)
    return {"name": "logistic regression on pixels", "accuracy": _logistic(train, test)}


def _logistic(train: Set, test: Set) -> float:
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=1e-3, max_iter=200).fit(train[0].flatten(1).numpy(), train[1].numpy())
    return float(fitted.score(test[0].flatten(1).numpy(), test[1].numpy()))


class LeNet(nn.Module):
    """Two convolutions of 5 × 5 and three linear layers, as LeNet-5 (LeCun et al. 1998), with ReLU and max-pooling."""

    def __init__(self, channels: int, side: int, labels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        inside = 16 * ((side // 2 - 4) // 2) ** 2
        self.last = nn.Sequential(
            nn.Linear(inside, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, labels)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.first(x).relu(), 2)
        return self.last(F.max_pool2d(self.second(x).relu(), 2).flatten(1))


def convolutions(arguments: list[str]) -> dict[str, Any]:
    """A LeNet trained for so many minutes, with AdamW and a cosine; the weights of the best validation."""
    train, test, given = _sets(arguments)
    return {"name": f"LeNet-5, {given.minutes:g} minutes", "accuracy": _trained(train, test, given.minutes)}


def _trained(train: Set, test: Set, minutes: float, rows: int = 64, lr: float = 2e-3) -> float:
    torch.manual_seed(0)
    order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(1))
    kept, held = order[len(order) // 50 :], order[: len(order) // 50]
    model = LeNet(train[0].shape[1], train[0].shape[2], int(train[1].max()) + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.05)
    began, best, found = time.monotonic(), -1.0, 0.0
    while (share := (time.monotonic() - began) / (60 * minutes)) < 1:
        for batch in kept[torch.randperm(len(kept))].split(rows):
            for group in optimizer.param_groups:
                group["lr"] = lr * (0.01 + 0.99 * (1 + np.cos(np.pi * min(share, 1))) / 2)
            loss = F.cross_entropy(model(train[0][batch]), train[1][batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if (now := _accuracy(model, (train[0][held], train[1][held]))) > best:
            best, found = now, _accuracy(model, test)
    return found


@torch.inference_mode()
def _accuracy(model: nn.Module, given: Set) -> float:
    said = torch.cat([model(part).argmax(1) for part in given[0].split(500)])
    return float((said == given[1]).float().mean())


def still_frames(arguments: list[str]) -> dict[str, Any]:
    """Moving digits told by all pixels of all frames at once, by logistic regression: nothing that moves is followed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--asks", choices=["direction", "digit"], default="direction")
    train, test = _arrays(MovingDigits(asks=parser.parse_args(arguments).asks), "video")
    return {"name": "logistic regression on all pixels", "accuracy": _logistic(train, test)}


COMMANDS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "nearest-picture": nearest,
    "linear-pixels": linear,
    "lenet": convolutions,
    "still-frames": still_frames,
}
