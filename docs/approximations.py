"""Draws docs/performer.svg, docs/linformer.svg and docs/reformer.svg and prints the tables of docs/attention.md that go with
them, measured against exact attention: `.venv/bin/python docs/approximations.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.look.chart import Series, line_chart
from qkv.look.standalone_svg import HEIGHT, WIDTH, figure
from qkv.nn.attention.attend import attend
from qkv.nn.attention.feature_maps import Elu1, Favor, FeatureMap, Features
from qkv.nn.attention.linear import linear_attention
from qkv.nn.attention.linformer import linformer
from qkv.nn.attention.lsh import exact, lsh_attention, unit

HERE = Path(__file__).parent
T, D, DRAWS = 256, 16, 12
SCORES = (0.1, 0.3, 1.0)  # standard deviations of the scores q·k/√d
FEATURES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
BANDS = (4, 16, 64)  # ranks of keys and values along the length
RANKS = (4, 8, 16, 32, 64, 128)
SHARPNESS = (5, 10, 20)  # ‖q‖, the greatest that a score of shared-QK attention can be
ROUNDS = (1, 2, 4, 8, 16)

Points = dict[int, float]


def drawn(score: float) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of T tokens and one head, scores having that standard deviation."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, T, 1, D, generator=generator, dtype=torch.float64) for _ in range(3))
    return q * score**0.5, k * score**0.5, v


def apart(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def by_features(score: float, features: FeatureMap, name: str = "") -> float:
    """How far linear attention with these features is from soft-max attention, relative to its norm."""
    q, k, v = drawn(score)
    root, directions = features.scale(D) ** 0.5, features.directions(D, name)

    def mapped(x: Tensor) -> Features:
        return features.features(x * root, directions)

    return apart(linear_attention(mapped(q), mapped(k), v, Layout.full(T)), attend(q, k, v, backend="reference"))


def performer(score: float, orthogonal: bool = True) -> Points:
    """The error by the number of features: the root mean square over draws."""

    def error(m: int) -> float:
        favor = Favor(n_features=m, orthogonal=orthogonal)
        return math.sqrt(sum(by_features(score, favor, str(i)) ** 2 for i in range(DRAWS)) / DRAWS)

    return {m: error(m) for m in FEATURES}


def slope(points: Points) -> float:
    """Of the straight line through the logarithms, by least squares."""
    x, y = (torch.tensor(list(values), dtype=torch.float64).log() for values in (points.keys(), points.values()))
    x = x - x.mean()
    return float((x * y).sum() / x.square().sum())


def projected(band: int) -> Points:
    """Linformer's error by its rank. Keys and values are sums of `band` cosines along the length, and E = F averages
    T/rank neighbors."""
    generator = torch.Generator().manual_seed(0)
    place = (torch.arange(T, dtype=torch.float64)[:, None] + 0.5) / T
    waves = torch.cos(math.pi * place * torch.arange(band))
    q, k, v = (torch.randn(n, D, generator=generator, dtype=torch.float64) for n in (T, band, band))
    k, v = ((waves @ x)[None, :, None] for x in (k, v))
    q, k = q[None, :, None], k / k.std()
    exact = attend(q, k, v, backend="reference")
    found = {}
    for rank in RANKS:
        means = torch.eye(rank, dtype=torch.float64).repeat_interleave(T // rank, 1)[None] * rank / T
        found[rank] = apart(linformer(q, k, v, means, means, Layout.full(T), D**-0.5), exact)
    return found


def table(first: str, columns: Mapping[str, Points]) -> str:
    """Markdown: a row for each budget."""
    budgets: Sequence[int] = list(next(iter(columns.values())))
    lines = [[first, *columns], ["---:"] * (len(columns) + 1)]
    lines += [[str(n), *(f"{points[n]:.2g}" for points in columns.values())] for n in budgets]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def chart(title: str, label: str, columns: Mapping[str, Points]) -> str:
    lines = [
        Series(name, [(math.log2(n), y) for n, y in points.items()], dots=True) for name, points in columns.items()
    ]
    return figure(line_chart(title, lines, x_label=label, width=WIDTH, height=HEIGHT, log=True))


def performers() -> dict[str, Points]:
    return {f"scores ± {score:g}": performer(score) for score in SCORES}


def linformers() -> dict[str, Points]:
    return {f"inputs of rank {band}": projected(band) for band in BANDS}


def by_rounds(rounds: Sequence[int], sharpness: float, length: int = 1024, buckets: int = 32, seed: int = 0) -> Points:
    """‖o − exact‖ / ‖exact‖ by the number of rounds: causal, 4 heads of width 32, chunks of 64.

    Tokens lie around as many directions as there are buckets; `sharpness` is ‖q‖, the greatest that a score can be.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    around = draw(buckets, 4, 32)[torch.randint(buckets, (length,), generator=generator)]
    qk = sharpness * unit(around + 0.3 * draw(length, 4, 32))[None]
    v, layout = draw(1, length, 4, 32), Layout.full(length)
    rotations = draw(4, 32, max(rounds), buckets // 2)
    wanted = exact(qk, unit(qk), v, v, layout=layout, kv_layout=layout)
    found = {n: lsh_attention(qk, v, rotations[:, :, :n].contiguous(), layout=layout, chunk=64) for n in rounds}
    return {n: apart(out, wanted) for n, out in found.items()}


def reformers() -> dict[str, Points]:
    return {f"scores up to {sharpness}": by_rounds(ROUNDS, sharpness) for sharpness in SHARPNESS}


def linear() -> str:
    """Another function than soft-max attention, and how far from it."""
    *others, last = (f"{by_features(score, Elu1()):.2g} (± {score:g})" for score in SCORES)
    return f"{', '.join(others)} and {last}"


if __name__ == "__main__":
    ours, theirs, hashed = performers(), linformers(), reformers()
    print(table("features m", ours), "\n\nslopes:", ", ".join(f"{slope(points):.2f}" for points in ours.values()))
    print("\n" + table("rank", theirs), "\n\nelu + 1:", linear())
    print("\n" + table("rounds", hashed))
    drawing = chart("Performer: relative error against exact attention", "log₂ of the number of features m", ours)
    (HERE / "performer.svg").write_text(drawing + "\n", encoding="utf-8")
    drawing = chart("Linformer: relative error against exact attention", "log₂ of the rank", theirs)
    (HERE / "linformer.svg").write_text(drawing + "\n", encoding="utf-8")
    drawing = chart("Reformer: relative error against exact attention", "log₂ of the number of rounds", hashed)
    (HERE / "reformer.svg").write_text(drawing + "\n", encoding="utf-8")
