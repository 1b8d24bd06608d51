"""Generated images of shapes, with segmentation masks, bounding boxes, captions and questions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ..media.images import Pixels, Size
from ..shuffle import mix
from ..source import SPLITS, Example, Source, Split, Table
from ..tables import ComputedTable

Plane = NDArray[Any]

INSIDE: dict[str, Callable[[Plane, Plane], Plane]] = {
    "circle": lambda x, y: x**2 + y**2 <= 1,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) <= 0.88,
    "triangle": lambda x, y: (y <= 0.85) & (abs(x) <= (y + 1) / 1.85),
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) <= 0.34) & (np.maximum(abs(x), abs(y)) <= 1),
}
"""Whether a point is in a shape that fills the square from −1 to 1, y downwards."""

KINDS = tuple(INSIDE)
COLORS = {
    "red": (214, 48, 49),
    "green": (46, 160, 67),
    "blue": (45, 98, 214),
    "yellow": (240, 200, 40),
    "purple": (142, 68, 173),
    "orange": (235, 125, 30),
}
SIZES = {"small": (0.13, 0.15), "large": (0.21, 0.24)}  # radius, as a share of the picture's shorter side
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SUBPIXELS = 3  # samples per pixel along each axis, for smooth edges
_TRIES = 100
_APART = 1.35  # minimum distance of centers, in radii: a corner of a triangle is 1.31 from its center


@dataclass(frozen=True)
class DrawnShape:
    """One shape in a picture; place and radius in pixels."""

    kind: str
    color: str
    size: str
    x: float
    y: float
    radius: float

    def __str__(self) -> str:
        return f"{self.size} {self.color} {self.kind}"

    def cover(self, size: Size) -> NDArray[np.float64]:
        """(H, W): the share of each pixel that the shape covers."""
        rows, columns = (
            slice(max(0, int(at - self.radius)), min(n, math.ceil(at + self.radius)))
            for at, n in zip((self.y, self.x), size, strict=True)
        )
        y, x = (
            (np.arange(span.start * _SUBPIXELS, span.stop * _SUBPIXELS) + 0.5) / _SUBPIXELS for span in (rows, columns)
        )
        inside = INSIDE[self.kind]((x[None] - self.x) / self.radius, (y[:, None] - self.y) / self.radius)
        covered = np.zeros(size)
        covered[rows, columns] = inside.reshape(len(y) // _SUBPIXELS, _SUBPIXELS, -1, _SUBPIXELS).mean((1, 3))
        return covered


@dataclass(frozen=True, eq=False)
class Scene:
    """An image (3, H, W), the shapes in it, and the pixels of each shape (n, H, W)."""

    image: Pixels
    shapes: tuple[DrawnShape, ...]
    masks: NDArray[np.bool_]

    def boxes(self) -> NDArray[np.float32]:
        """(n, 4): left, top, right and bottom edge of each shape, in pixels."""
        boxes = []
        for mask in self.masks:
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            boxes.append((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
        return np.array(boxes, np.float32).reshape(-1, 4)

    def mask(self) -> NDArray[np.uint8]:
        """(H, W): 0 for the background, else the number of the shape's kind, from 1."""
        kinds = np.array([1 + KINDS.index(shape.kind) for shape in self.shapes])
        return np.asarray((self.masks * kinds[:, None, None]).sum(0), np.uint8)


def arranged(random: np.random.Generator, size: Size, count: int) -> tuple[DrawnShape, ...]:
    """`count` random shapes that don't touch, or fewer if there is no room."""
    shapes: list[DrawnShape] = []
    for _ in range(count):
        for _ in range(_TRIES):
            one = _shape(random, size)
            if all(math.dist((one.x, one.y), (s.x, s.y)) > _APART * (one.radius + s.radius) for s in shapes):
                shapes.append(one)
                break
    return tuple(shapes)


def drawn(random: np.random.Generator, size: Size, shapes: tuple[DrawnShape, ...], noise: float) -> Scene:
    """Draw shapes on a noisy gray background."""
    image = np.full((3, *size), random.uniform(150, 235), np.float32)
    masks = np.zeros((len(shapes), *size), bool)
    for shape, mask in zip(shapes, masks, strict=True):
        cover = shape.cover(size)
        color = np.array(COLORS[shape.color]) + random.uniform(-15, 15, 3)
        image += cover * (color[:, None, None] - image)
        mask[:] = cover >= 0.5
    image += 255 * noise * random.standard_normal(image.shape, np.float32)
    return Scene(image.clip(0, 255).astype(np.uint8), shapes, masks)


def _shape(random: np.random.Generator, size: Size) -> DrawnShape:
    kind, color, name = (known[int(random.integers(len(known)))] for known in (KINDS, tuple(COLORS), tuple(SIZES)))
    radius = random.uniform(*SIZES[name]) * min(size)
    y, x = (random.uniform(radius, n - radius) for n in size)
    return DrawnShape(kind, color, name, x, y, radius)


class Shapes(Source, kind="shapes"):
    """Images of `least` to `most` shapes in six colors and two sizes, with a mask (0 is the background) and a box for
    each shape. The classes are circle, square, triangle and cross.

    size:  height and width, in pixels; noise: standard deviation of each pixel, as a share of white.

    Each epoch generates `train` new images; the images of validation and test are the same in every run.
    """

    size: Size = (64, 64)
    least: int = Field(default=1, ge=1)
    most: int = Field(default=4, ge=1, lt=len(NUMBERS))
    noise: float = Field(default=0.04, ge=0, le=1)
    train: int = Field(default=4000, ge=1)
    validation: int = Field(default=200, ge=1)
    test: int = Field(default=400, ge=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.most < self.least:
            raise ValueError(f"most ({self.most}) is less than least ({self.least})")
        if min(self.size) < 16:
            raise ValueError(f"size must be at least 16 × 16 pixels, not {self.size}")
        return self

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names of the numbers in a mask."""
        return ("background", *KINDS)

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        """Validation and test images are generated from the seed −1, which no training run uses."""
        number = SPLITS.index(split)
        key = (-1, number) if number else (seed, epoch)
        return ComputedTable(
            getattr(self, split), lambda i: self.generate(np.random.default_rng(mix(*key, i)), split, i)
        )

    def shapes(self, random: np.random.Generator) -> tuple[DrawnShape, ...]:
        return arranged(random, self.size, int(random.integers(self.least, self.most + 1)))

    def generate(self, random: np.random.Generator, split: Split, number: int) -> Example:
        """Generate one image of a split."""
        scene = drawn(random, self.size, self.shapes(random), self.noise)
        return {
            "image": scene.image,
            "mask": scene.mask(),
            "boxes": scene.boxes(),
            "names": [shape.kind for shape in scene.shapes],
            "where": f"made picture {number + 1:,} of the {split} split",
        }


class Scenes(Shapes, kind="scenes"):
    """Images of one or two shapes, each with a caption, or, for a share of `questions`, with a question and its answer:

        a small red circle above a large blue square
        what color is the triangle ?  →  green

    Validation and test images are never trained on, but their captions may occur in training. (Were captions held out,
    a model could learn that these captions never occur.)
    """

    most: int = Field(default=2, ge=1, le=2)
    questions: float = Field(default=0.5, ge=0, le=1)
    train: int = Field(default=8000, ge=1)

    def generate(self, random: np.random.Generator, split: Split, number: int) -> Example:
        shapes = self.shapes(random)
        while not (caption := sentence(shapes)):
            shapes = self.shapes(random)
        text, answer = question(random, shapes) if random.random() < self.questions else ("", caption)
        image = drawn(random, self.size, shapes, self.noise).image
        where = f"made picture {number + 1:,} of the {split} split"
        return {"image": image, "question": text, "answer": answer, "where": where}


def sentence(shapes: tuple[DrawnShape, ...]) -> str:
    """A caption that names the upper or the left shape first; "" if their relation is ambiguous."""
    if len(shapes) == 1:
        return f"a {shapes[0]}"
    first, second, relation = related(*shapes)
    return f"a {first} {relation} a {second}" if relation else ""


def related(a: DrawnShape, b: DrawnShape) -> tuple[DrawnShape, DrawnShape, str]:
    """Both shapes, the upper or the left one first, and their relation; "" if it is ambiguous."""
    across, down = abs(a.x - b.x), abs(a.y - b.y)
    if max(across, down) < 1.3 * min(across, down):
        return a, b, ""
    if down > across:
        upper, lower = sorted((a, b), key=lambda shape: shape.y)
        return upper, lower, "above"
    left, right = sorted((a, b), key=lambda shape: shape.x)
    return left, right, "left of"


def question(random: np.random.Generator, shapes: tuple[DrawnShape, ...]) -> tuple[str, str]:
    """A random question with exactly one true answer, and that answer."""
    one = shapes[int(random.integers(len(shapes)))]
    others = [color for color in COLORS if color != one.color]
    other = others[int(random.integers(len(others)))]
    answers = {
        "how many shapes are there ?": NUMBERS[len(shapes)],
        f"is there a {one.color} {one.kind} ?": "yes",
        f"is there a {other} {one.kind} ?": "yes" if _any(shapes, other, one.kind) else "no",
    }
    if sum(shape.kind == one.kind for shape in shapes) == 1:
        answers |= {f"what color is the {one.kind} ?": one.color, f"how large is the {one.kind} ?": one.size}
    if sum(shape.color == one.color for shape in shapes) == 1:
        answers[f"what is the {one.color} shape ?"] = f"a {one.kind}"
    if len(shapes) == 2:
        first, second, relation = related(*shapes)
        answers[f"what is {relation} the {second} ?"] = f"a {first}"
    texts = list(answers)
    chosen = texts[int(random.integers(len(texts)))]
    return chosen, answers[chosen]


def _any(shapes: tuple[DrawnShape, ...], color: str, kind: str) -> bool:
    return any((shape.color, shape.kind) == (color, kind) for shape in shapes)
