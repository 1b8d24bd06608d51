"""Draws docs/landing.svg, the moving picture of the site's first page: `.venv/bin/python docs/landing.py`.

One word, two sentences: attention moves the vector of "crane" towards the words around it. `attend` computes the weights.
"""

from __future__ import annotations

from pathlib import Path

import torch
from markupsafe import Markup
from torch import Tensor

import qkv
from qkv.look.svg import number, tag, text_width

HERE = Path(__file__).parent
WORDS = {  # vectors in the plane: to the right what lives, upwards what is built
    "the": (0.2, 0.2),
    "crane": (1.5, 1.5),
    "caught": (2.1, 0.5),
    "a": (0.2, 0.2),
    "fish": (3.0, 0.2),
    "lifted": (0.5, 2.1),
    "steel": (0.2, 3.0),
}
SENTENCES = (("the", "crane", "caught", "a", "fish"), ("the", "crane", "lifted", "a", "steel"))
WIDTH, HEIGHT, PERIOD = 560, 300, 10  # units of the picture, seconds
QUERY = 1  # the word that is followed
SIZE, SPACE, BASE = 17, 15, 170  # of the sentence: font, space between words, line above it

STYLE = f"""
svg {{ font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }}
.page {{ fill: #fbfaf8; }} .word {{ fill: #1c1b22; font-size: {SIZE}px; }} .soft {{ fill: #5d5b68; font-size: 12px; }}
.axis {{ stroke: #d5d1c8; stroke-width: 1.2; fill: none; }} .arc {{ stroke: #3b2fb5; fill: none; stroke-linecap: round; }}
.dot {{ fill: #a5a1b5; }} .moved {{ fill: #d2611c; }} .query {{ fill: #d2611c; font-weight: 600; }}
@media (prefers-color-scheme: dark) {{
  .page {{ fill: #131217; }} .word {{ fill: #ebe9f2; }} .soft {{ fill: #a29fb0; }} .axis {{ stroke: #3d3a47; }}
  .arc {{ stroke: #a79bff; }} .dot {{ fill: #6a6680; }} .moved, .query {{ fill: #ffa263; }}
}}
.scene {{ opacity: 0; animation: scene {PERIOD}s infinite; }} .scene.second {{ animation-delay: -{PERIOD / 2:g}s; }}
@keyframes scene {{ 0% {{ opacity: 0; }} 3%, 47% {{ opacity: 1; }} 50%, 100% {{ opacity: 0; }} }}
.scene .arc {{ animation: draw {PERIOD}s infinite; }} .second .arc {{ animation-delay: -{PERIOD / 2:g}s; }}
@keyframes draw {{ 0%, 4% {{ stroke-dashoffset: 1; }} 14%, 100% {{ stroke-dashoffset: 0; }} }}
@media (max-width: 420px) {{ .soft {{ font-size: 15px; }} }}
@media (prefers-reduced-motion: reduce) {{
  .scene, .scene .arc, .scene .moved {{ animation: none; }} .scene.first {{ opacity: 1; }}
  .scene .arc {{ stroke-dashoffset: 0; }}
}}
"""


def attended(words: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """The weights of the followed word's query over the sentence, and the sum of values that they give."""
    x = torch.tensor([WORDS[word] for word in words])[None, :, None]  # (batch, length, heads, width)
    with qkv.record_attention() as calls:
        out = qkv.attend(x, x, x, backend="reference")
    return qkv.weights(calls[0])[0, 0, QUERY], out[0, QUERY, 0]


def place(vector: tuple[float, float] | Tensor) -> tuple[float, float]:
    """The coordinates of a vector in the plane at the right."""
    x, y = (float(value) for value in vector)
    return 348 + 56 * x, 236 - 56 * y


def scene(words: tuple[str, ...], name: str) -> Markup:
    """A sentence with arcs as wide as the weights, and the plane with the vector that moves."""
    weights, out = attended(words)
    at, left = [], 22.0
    for word in words:
        at.append(left + text_width(word, SIZE) / 2)
        left += text_width(word, SIZE) + SPACE
    arcs, labels = [], []
    for i, (word, weight) in enumerate(zip(words, weights.tolist(), strict=True)):
        start, end = (at[QUERY] - 12, at[QUERY] + 12) if i == QUERY else (at[QUERY], at[i])
        rise = BASE - 40 - 0.6 * abs(end - start)
        d = f"M{number(start)} {BASE}C{number(start)} {number(rise)} {number(end)} {number(rise)} {number(end)} {BASE}"
        look = {"stroke_width": 1 + 14 * weight, "stroke_opacity": 0.8, "pathLength": 1, "stroke_dasharray": 1}
        arcs.append(tag("path", d=d, class_="arc", **look))
        name_class = "word query" if i == QUERY else "word"
        labels.append(tag("text", word, x=at[i], y=BASE + 26, text_anchor="middle", class_=name_class))
        labels.append(tag("text", f"{weight:.2f}", x=at[i], y=BASE + 48, text_anchor="middle", class_="soft"))
    (x0, y0), (x1, y1) = place(WORDS[words[QUERY]]), place(out)
    dots = []
    for vector, word in {WORDS[word]: word for word in words}.items():
        x, y = place(vector)
        hidden = abs(x - x1) < 16 and abs(y - y1) < 16  # the label would lie under the vector that moves
        at_x, at_y = (x1 + 12, y1 - 3) if hidden else (x + 8, y - 6)
        dots += [tag("circle", cx=x, cy=y, r=4, class_="dot"), tag("text", word, x=at_x, y=at_y, class_="soft")]
    path = f"M{number(x0)} {number(y0)}L{number(x1)} {number(y1)}"
    move = f"translate({number(x0 - x1)}px,{number(y0 - y1)}px)"
    frames = f"@keyframes {name} {{ 0%, 16% {{ transform: {move}; }} 28%, 100% {{ transform: none; }} }}"
    delay = "" if name == "first" else f"animation-delay: -{PERIOD / 2:g}s;"
    rule = f".{name} .moved {{ animation: {name} {PERIOD}s infinite; {delay} }}"
    return tag(
        "g",
        tag("style", Markup(f"{frames} {rule}")),
        *arcs,
        *labels,
        *dots,
        tag("path", d=path, class_="axis", stroke_dasharray="3 4"),
        tag("circle", cx=x1, cy=y1, r=8, class_="moved"),
        class_=f"scene {name}",
    )


def landing() -> Markup:
    """The whole picture."""
    left, bottom = place((0, 0))
    right, top = place((3.5, 3.3))
    axes = f"M{number(left)} {number(top)}V{number(bottom)}H{number(right)}"
    title = "Attention moves the vector of one word towards the words around it"
    return tag(
        "svg",
        tag("title", title),
        tag("style", Markup(STYLE)),
        tag("rect", width=WIDTH, height=HEIGHT, rx=14, class_="page"),
        tag("path", d=axes, class_="axis"),
        tag("text", "attend(q, k, v): weights of one query", x=22, y=34, class_="soft"),
        tag("text", "The same word, moved by its sentence", x=22, y=262, class_="soft"),
        tag("text", "lives →", x=right, y=bottom + 20, text_anchor="end", class_="soft"),
        tag("text", "↑ is built", x=left, y=top - 14, class_="soft"),
        *(scene(words, name) for words, name in zip(SENTENCES, ("first", "second"), strict=True)),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        role="img",
    )


if __name__ == "__main__":
    (HERE / "landing.svg").write_text(landing() + "\n", encoding="utf-8")
