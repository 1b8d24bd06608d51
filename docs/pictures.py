"""Draws docs/attend.svg, the picture in the README, from the library itself: `.venv/bin/python docs/pictures.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from markupsafe import Markup

import qkv
from qkv.look.svg import join, number, tag

HERE = Path(__file__).parent
SIDE = 84  # of a small picture
CARD, GAP, MARGIN = 216, 16, 24  # widths

STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
.page { fill: #fbfaf8; } .card { fill: #ffffff; stroke: #e4e1db; } .sheet { fill: #f1efea; }
.ink, .warm, .cool { shape-rendering: crispEdges; }
.ink { fill: #3b2fb5; } .warm { fill: #d2611c; } .cool { fill: #0f8a7e; }
.title { fill: #1c1b22; font-size: 14px; font-weight: 600; } .soft { fill: #5d5b68; font-size: 12px; }
.code { fill: #1c1b22; font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 11px; }
.large { font-size: 19px; font-weight: 600; } .wire { stroke: #a5a1b5; stroke-width: 1.5; fill: none; }
@media (prefers-color-scheme: dark) {
  .page { fill: #131217; } .card { fill: #1b1a21; stroke: #32303b; } .sheet { fill: #25232d; }
  .ink { fill: #a79bff; } .warm { fill: #ffa263; } .cool { fill: #56cfc1; }
  .title, .code { fill: #ebe9f2; } .soft { fill: #a29fb0; } .wire { stroke: #6a6680; }
}
"""


def grid(ink: torch.Tensor, x: float, y: float, class_: str = "ink") -> Markup:
    """Numbers from 0 to 1 as squares of that much ink; cells of equal ink side by side are one."""
    rows, columns = ink.shape
    parts = [tag("rect", x=x, y=y, width=SIDE, height=SIDE, rx=3, class_="sheet")]
    for r, row in enumerate((ink * 20).round().div(20).tolist()):
        c = 0
        while c < columns:
            end = next((e for e in range(c, columns) if row[e] != row[c]), columns)
            if row[c]:
                parts.append(
                    tag(
                        "rect",
                        x=x + c * SIDE / columns,
                        y=y + r * SIDE / rows,
                        width=(end - c) * SIDE / columns,
                        height=SIDE / rows,
                        fill_opacity=number(row[c]),
                        class_=class_,
                    )
                )
            c = end
    return join(*parts)


def patterns() -> list[tuple[str, Markup]]:
    shown = {
        "causal()": qkv.causal(),
        "window | sinks": qkv.causal() & (qkv.window(6) | qkv.sinks(2)),
    }
    return [(name, grid(pattern.mask(21).float(), 0, 0)) for name, pattern in shown.items()]


def positions() -> list[tuple[str, Markup]]:
    """The sinusoids of 28 positions (rows), and what ALiBi takes away from scores (darker: less)."""
    place = torch.arange(28.0)[:, None]
    angles = place / 40 ** (torch.arange(14.0) / 14)
    sinusoids = torch.cat([angles.sin(), angles.cos()], 1)
    distance = (torch.arange(21)[:, None] - torch.arange(21)).float()
    alibi = torch.where(distance < 0, 0.0, (1 - distance / 16).clamp(min=0.08))
    return [("sinusoidal", grid(sinusoids / 2 + 0.5, 0, 0, "warm")), ("alibi", grid(alibi, 0, 0, "warm"))]


def states() -> list[tuple[str, Markup]]:
    """What each decoding step (rows) still holds: everything, or a ring of the last tokens."""
    step, token = torch.arange(14)[:, None], torch.arange(14)
    full = (token <= step).float() * 0.45 + (token == step).float() * 0.55
    ring = torch.zeros(14, 14)
    for s in range(14):
        for t in range(max(0, s - 5), s + 1):
            ring[s, t % 6] = 1.0 if t == s else 0.45
    return [("full", grid(full, 0, 0, "cool")), ("ring of 6", grid(ring[:, :6], 0, 0, "cool"))]


def backends() -> list[tuple[str, Markup]]:
    """All pairs at once, and tile by tile: pale tiles are skipped, strong ones need their mask looked at."""
    mask = (qkv.causal() & qkv.window(9)).mask(21).float()
    tiles = mask.reshape(7, 3, 7, 3).mean((1, 3))
    work = torch.where(tiles == 0, 0.06, torch.where(tiles == 1, 0.55, 1.0))
    return [("sdpa", grid(0.2 + 0.8 * mask, 0, 0)), ("tiled", grid(work, 0, 0))]


def card(i: int, title: str, pictures: Sequence[tuple[str, Markup]], words: Sequence[str]) -> Markup:
    x, y = MARGIN + i * (CARD + GAP), 24
    parts = [
        tag("rect", x=x, y=y, width=CARD, height=214, rx=10, class_="card"),
        tag("text", title, x=x + 16, y=y + 30, class_="title"),
    ]
    for j, (name, drawn) in enumerate(pictures):
        left = x + 16 + j * (SIDE + 16)
        parts.append(tag("g", drawn, transform=f"translate({left} {y + 46})"))
        parts.append(tag("text", name, x=left, y=y + 46 + SIDE + 16, class_="code"))
    parts += [tag("text", line, x=x + 16, y=y + 172 + 18 * j, class_="soft") for j, line in enumerate(words)]
    middle = x + CARD / 2
    parts.append(tag("path", d=f"M{number(middle)} {y + 214}V{y + 242}", class_="wire"))
    return join(*parts)


def bar(y: float, height: float, line: str, words: str, class_: str) -> Markup:
    width = 4 * CARD + 3 * GAP
    middle = MARGIN + width / 2
    return join(
        tag("rect", x=MARGIN, y=y, width=width, height=height, rx=10, class_="card"),
        tag("text", line, x=middle, y=y + 32, text_anchor="middle", class_=class_),
        tag("text", words, x=middle, y=y + 54, text_anchor="middle", class_="soft"),
    )


def attend() -> Markup:
    cards = [
        ("Who may look at whom", patterns(), ("full, prefix, sinks, documents", "and any & | ~ of them")),
        ("Where things are", positions(), ("learned, rotary, T5 buckets", "or none")),
        ("What is remembered", states(), ("one state a layer;", "the source's is made once")),
        ("How it is computed", backends(), ("reference, sdpa, tiled:", "the same numbers from each")),
    ]
    width, height = 2 * MARGIN + 4 * CARD + 3 * GAP, 448
    words = "one place where queries meet keys; heads are third: (B, T, H, D)"
    tree = "spec → build → train → generate → report"
    whole = "one frozen tree describes any encoder, decoder or encoder–decoder: replace a part and build another model"
    return tag(
        "svg",
        tag("title", "Patterns, positions, states and backends meet in one function, attend(q, k, v)"),
        tag("style", Markup(STYLE)),
        tag("rect", width=width, height=height, rx=14, class_="page"),
        *(card(i, *one) for i, one in enumerate(cards)),
        bar(266, 68, "attend(q, k, v)", words, "code large"),
        tag("path", d=f"M{width / 2:g} 334V356", class_="wire"),
        bar(356, 68, tree, whole, "title"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        role="img",
    )


if __name__ == "__main__":
    (HERE / "attend.svg").write_text(attend() + "\n", encoding="utf-8")
