"""Patterns and layouts that block maps and plans are drawn from."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from qkv.core.layout import MEDIUM_BIT, Layout, Role
from qkv.nn.patterns.basic import causal, documents, full, media, prefix, sinks, window

PATTERNS = [
    full(),
    causal(),
    causal() & window(3),
    ~causal(),
    causal() & window(2) | sinks(2),
    causal() | prefix(),
    causal() | media(),
    ~media() & causal(),
    documents() & ~window(2),
]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    kind = draw(st.sampled_from(["full", "mask", "packed", "roles"]))
    if kind == "full":
        return Layout.full(draw(st.integers(1, 20)), start=draw(st.integers(0, 9)))
    if kind == "packed":
        rows = draw(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=2))
        return Layout.packed(rows, max(map(sum, rows)) + draw(st.integers(0, 5)))
    width = draw(st.integers(1, 16))
    mask = draw(st.lists(st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=2))
    layout = Layout.from_mask(torch.tensor(mask))
    if kind == "roles":
        bits = draw(
            st.lists(
                st.sampled_from([0, 1, int(Role.PREFIX), Role.MEDIUM | 1 << MEDIUM_BIT, Role.MEDIUM | 2 << MEDIUM_BIT]),
                min_size=width,
                max_size=width,
            )
        )
        layout = layout.with_roles(torch.tensor([bits]).expand(layout.shape[0], -1))
    return layout
