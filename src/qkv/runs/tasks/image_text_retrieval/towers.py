"""`Towers`: vectors of picture files and texts by a dual encoder, zero-shot classes, and what is nearest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ....core.spec import brief, counted
from ....data.batching.numpy_batch import Array
from ....data.file_kinds import files_below
from ....data.media.image_files import SUFFIXES
from ....generation.prompts import padded
from ....nn.models.dual_encoder import DualEncoderModel, unit
from ..classes import Classified, classified
from .templates import prompts

_PICTURES, _TEXTS = 32, 256  # in a batch
_LONGEST_NAME = 1000  # characters


@dataclass(frozen=True)
class Towers:
    """A dual encoder, and how it reads.

    picture: the tower's input (C, H, W) for a picture file.
    rows:    for each text its tokens and how many were cut off; `longest` is the most that there are.
    """

    model: DualEncoderModel
    picture: Callable[[str], NDArray[np.float32]]
    rows: Callable[[Sequence[str]], list[tuple[Array, int]]]
    longest: int | None = None

    @torch.inference_mode()
    def images(self, paths: Sequence[str], normalize: bool = True) -> Float[Tensor, "N M"]:
        """The vectors of picture files, on the CPU in fp32. Raises ValueError if one can't be read."""
        parts = []
        for start in range(0, len(paths), _PICTURES):
            pictures = [self.picture(path) for path in paths[start : start + _PICTURES]]
            made: dict[int, Tensor] = {}
            for shape in {one.shape for one in pictures}:
                rows = [i for i, one in enumerate(pictures) if one.shape == shape]
                pixels = torch.from_numpy(np.stack([pictures[i] for i in rows])).to(self.model.device)
                made |= zip(rows, self.model.encode_image(pixels).float().cpu(), strict=True)
            parts.append(torch.stack([made[i] for i in range(len(pictures))]))
        return self._joined(parts, normalize)

    @torch.inference_mode()
    def texts(self, texts: Sequence[str], normalize: bool = True) -> Float[Tensor, "B M"]:
        """The vectors of texts. Warns of texts that are cut. Raises ValueError for an empty one."""
        empty = next((i for i, text in enumerate(texts, 1) if not text.strip()), None)
        if empty is not None:
            raise ValueError(f"text {empty} is empty, so there is nothing to embed")
        rows, parts = self.rows(texts), []
        if cut := sum(lost > 0 for _, lost in rows):
            what = f"{counted(cut, 'text')} {'is' if cut == 1 else 'are'}"
            warnings.warn(
                f"{what} longer than the {self.longest} tokens that the model reads, and cut there", stacklevel=3
            )
        for start in range(0, len(rows), _TEXTS):
            ids, layout = padded([row.tolist() for row, _ in rows[start : start + _TEXTS]], self.model.device)
            parts.append(self.model.encode_text(ids, layout).float().cpu())
        return self._joined(parts, normalize)

    def vectors(self, inputs: Sequence[str], normalize: bool = True) -> Float[Tensor, "N M"]:
        """The vectors of picture files and texts together, in their order."""
        found = torch.empty(len(inputs), self.model.spec.d_model)
        for of_pictures, encode in ((True, self.images), (False, self.texts)):
            if numbers := [i for i, one in enumerate(inputs) if is_picture(one) is of_pictures]:
                found[numbers] = encode([inputs[i] for i in numbers], normalize)
        return found

    def classify(self, paths: Sequence[str], classes: Sequence[str], templates: Sequence[str]) -> list[Classified]:
        """Zero-shot classification: the classes by the score of a picture with the mean of a class's prompts, as vectors of
        length 1 (Radford et al. 2021, §3.1). With SigLIP's bias, each class has its own probability.

        Raises ValueError for fewer than two classes, and for templates without {}.
        """
        names, asked = [name.strip() for name in classes], prompts(classes, templates)
        flat = self.texts([prompt for prompts_ in asked for prompt in prompts_])
        of_class = unit(flat.unflatten(0, (len(names), -1)).mean(1))
        with torch.no_grad():
            scale = self.model.logit_scale.float().exp().cpu()
            bias = self.model.logit_bias
            scores = scale * self.images(paths) @ of_class.mT + (0.0 if bias is None else bias.float().cpu())
        return classified(names, scores, bias is not None)

    def nearest(self, queries: Sequence[str], among: Sequence[str], top: int) -> list[list[tuple[str, float]]]:
        """For each query, a text or a picture file, the `top` candidates of the highest cosine."""
        scores = self.vectors(queries) @ self.vectors(among).mT
        best = scores.topk(min(top, len(among)))
        rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [[(among[i], value) for value, i in zip(*row, strict=True)] for row in rows]

    def _joined(self, parts: list[Tensor], normalize: bool) -> Tensor:
        vectors = torch.cat(parts) if parts else torch.empty(0, self.model.spec.d_model)
        return unit(vectors) if normalize else vectors


def is_picture(text: str, where: str = "") -> bool:
    """Whether a text is the name of a picture file. Raises ValueError, naming it after `where`, if it is one word that ends
    like such a name, and there is no file."""
    try:
        named = Path(text).suffix.lower() in SUFFIXES
        there = named and Path(text).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # no text that a name can be
        return False
    if named and not there and len(text.split()) == 1:
        raise ValueError(f"{where}there is no picture {brief(text)}")
    return there


def candidates(among: str | Path | Sequence[str]) -> list[str]:
    """Candidates of a search: the pictures in a folder, the lines of a text file, or a list as it is. A line may be the name
    of a picture, also one in the file's folder.

    Raises ValueError if there are none, for a picture that is missing, and for a file that is not UTF-8.
    """
    if not isinstance(among, str | Path):
        found, what = [str(one) for one in among], "the list of candidates"
    else:
        path, what = Path(among).expanduser(), str(among)
        if path.is_dir():
            found = [str(one) for one in files_below(path, SUFFIXES)]
        elif path.is_file() and path.suffix.lower() not in SUFFIXES:
            found = list(_listed(path))
        else:
            raise ValueError(
                f"there is no folder or file of lines {what}; name one with pictures or texts to search among"
            )
    if not found:
        raise ValueError(f"{what} holds no pictures and no lines, so there is nothing to search among")
    return found


def _listed(path: Path) -> Iterator[str]:
    """The lines of a file that are not empty."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{brief(path)} is not UTF-8: the byte {error.start + 1:,} begins no character; save it as UTF-8"
        ) from None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        beside = path.parent / text
        if text and len(text) < _LONGEST_NAME and beside.suffix.lower() in SUFFIXES and beside.is_file():
            yield str(beside)
        elif text:
            is_picture(text, f"{path}, line {number:,}: ")
            yield text


def options_of(value: str | Iterable[object]) -> list[str]:
    """Names separated by commas, or a list of names."""
    return value.split(",") if isinstance(value, str) else [str(one) for one in value]
