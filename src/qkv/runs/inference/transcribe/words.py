"""Times of words: cross-attention is aligned with the sound by dynamic time warping (Radford et al. 2022's code)."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ....core.spec import brief
from ....nn.attention import tap
from .languages import WITHOUT_SPACES
from .pieces import WindowPiece
from .transcript import TimedWord
from .window import Decoded, HeardWindow

SMOOTHED = 7  # steps of the median filter
_OPENING, _CLOSING = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"


def words_of(
    window: HeardWindow,
    prompt: Sequence[int],
    made: Decoded,
    found: Sequence[WindowPiece],
    steps: int,
    language: str | None,
) -> list[tuple[TimedWord, ...]]:
    """The words of each piece of a window, with their times in steps of its `steps`."""
    ends = token_ends(window, prompt, made.tokens, steps)
    segments = []
    for piece in found:
        words = []
        first = window.codes.first or window.vocab_size
        tokens = [i for i in range(piece.begin, piece.end) if made.tokens[i] < first]
        for group in split_words(window, [made.tokens[i] for i in tokens], language in WITHOUT_SPACES):
            places, tokens = tokens[: len(group)], tokens[len(group) :]
            start = ends[places[0] - 1] if places[0] else piece.start
            likely = [made.log_probs[i] for i in places if i < len(made.log_probs)]
            probability = float(np.exp(likely).mean()) if likely else None
            words.append(TimedWord(window.run.words.decode(group), float(start), float(ends[places[-1]]), probability))
        segments.append(tuple(words))
    return segments


@torch.inference_mode()
def token_ends(window: HeardWindow, prompt: Sequence[int], tokens: Sequence[int], steps: int) -> NDArray[np.float64]:
    """The step at which each token ends: where the attention from it, which predicts the next, has moved on.

    The path begins with the row that predicts the first text, which is a timestamp's if the model writes timestamps, and
    otherwise the prompt's last.
    """
    if not tokens:
        return np.zeros(0)
    ids = torch.tensor([[*prompt, *tokens]], device=window.device)
    with tap.record_attention() as requests:
        window.step(ids, window.start())
    crossing = [request for request in requests if request.name.endswith(".cross")]
    heads = window.codes.heads or _later_heads(len(crossing), crossing[0].n_heads)
    timed = window.codes.first is not None and tokens[0] >= window.codes.first
    rows = list(range(len(prompt) - (not timed), len(prompt) + len(tokens)))
    chosen = []
    for layer, head in heads:
        if layer >= len(crossing) or head >= crossing[layer].n_heads:
            raise ValueError(
                f"alignment_heads names head {head} of layer {layer}, and the decoder has {len(crossing)} layers of "
                f"{crossing[0].n_heads} heads"
            )
        chosen.append(tap.weights(crossing[layer], [head], rows)[0, 0])
    return moved_on(torch.stack(chosen)[..., : max(steps, 1)].float(), smoothed_over(window))[-len(tokens) :]


def smoothed_over(window: HeardWindow) -> int:
    """The width of the median filter. Raises ValueError if the model's configuration gives no odd number."""
    origin = window.run.origin
    width = SMOOTHED if origin is None else origin.config.get("median_filter_width", SMOOTHED)
    if type(width) is not int or width < 1 or width % 2 == 0:
        raise ValueError(f"median_filter_width is an odd number, not {brief(width)}")
    return width


def _later_heads(layers: int, heads: int) -> list[tuple[int, int]]:
    """All heads of the later half of the layers."""
    return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]


def moved_on(weights: Float[Tensor, "heads tokens steps"], width: int) -> NDArray[np.float64]:
    """The step at which the path through attention leaves each token; weights are normalized over tokens, and smoothed."""
    mean, deviation = weights.mean(1, keepdim=True), weights.std(1, keepdim=True, unbiased=False)
    smooth = median((weights - mean) / deviation.clamp(min=1e-12), width).mean(0)
    rows, columns = warp(-smooth.double().cpu().numpy())
    jumps = np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)
    return columns[jumps].astype(np.float64)


def median(x: Float[Tensor, "H T S"], width: int) -> Float[Tensor, "H T S"]:
    """The running median over `width` steps, mirrored at both ends."""
    side = width // 2
    if x.shape[-1] <= side:
        return x
    return F.pad(x, (side, side), mode="reflect").unfold(-1, width, 1).sort(-1).values[..., side]


def warp(costs: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The path of least cost through a matrix (rows, columns), from corner to corner, by steps of one row, column or both
    (Sakoe & Chiba 1978). Of equal ways, one along a row is taken."""
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    came = np.full((rows + 1, columns + 1), 2, np.int8)
    total[0, 0], came[1:, 0] = 0, 1
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, along = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        way = np.where((both < down) & (both < along), 0, np.where((down < both) & (down < along), 1, 2))
        total[i, j] = costs[i - 1, j - 1] + np.choose(way, (both, down, along))
        came[i, j] = way
    path, at = [], (rows, columns)
    while at != (0, 0):
        path.append(at)
        way = came[at]
        at = (at[0] - (way != 2), at[1] - (way != 1))
    backwards = np.array(path[::-1], np.int64).reshape(-1, 2) - 1
    return backwards[:, 0], backwards[:, 1]


def split_words(window: HeardWindow, tokens: Sequence[int], by_character: bool) -> list[list[int]]:
    """Tokens grouped into words: at spaces, or for languages without them at characters; signs belong to their word."""
    groups: list[list[int]] = []
    texts: list[str] = []
    waiting: list[int] = []
    for token in tokens:
        waiting.append(token)
        text = window.run.words.decode(waiting)
        if text.endswith("\ufffd") or not text.strip():  # a character is not complete, or a space alone
            continue
        sign = text.strip() in string.punctuation
        if by_character or not groups or text.startswith(" ") or sign:
            groups.append(waiting)
            texts.append(text)
        else:
            groups[-1] += waiting
            texts[-1] += text
        waiting = []
    if waiting:
        groups.append(waiting)
        texts.append("")
    return _with_signs(groups, texts)


def _with_signs(groups: list[list[int]], texts: list[str]) -> list[list[int]]:
    """Join opening signs to the word after them, and closing signs to the word before."""
    joined: list[list[int]] = []
    opening: list[int] = []
    for group, text in zip(groups, texts, strict=True):
        sign = text.strip()
        if sign and sign in _OPENING and text.startswith(" "):
            opening += group
        elif joined and not opening and sign and sign in _CLOSING and not text.startswith(" "):
            joined[-1] += group
        else:
            joined.append([*opening, *group])
            opening = []
    return [*joined, opening] if opening else joined
