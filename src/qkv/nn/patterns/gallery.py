"""Examples of all patterns, with code, description and paper, as `qkv list patterns` prints them."""

from __future__ import annotations

from typing import NamedTuple

from .algebra import Pattern, by_head, full
from .basic import causal, documents, global_tokens, media, prefix, sinks, window
from .bigbird import BigBird
from .grids import axial, grid_windows, neighborhood
from .sparse import blocks, chunks, dilated, fixed, random_blocks, strided


class Example(NamedTuple):
    """A small pattern, its code, a one-sentence description and its paper."""

    spelling: str
    pattern: Pattern
    about: str
    paper: str


_LONGFORMER = "Beltagy et al. 2020, Longformer"
_SPARSE = "Child et al. 2019, Sparse Transformer"
_BIGBIRD = "Zaheer et al. 2020, BigBird"
_STREAMING = "Xiao et al. 2023, StreamingLLM"

GALLERY: tuple[Example, ...] = (
    Example("full()", full(), "Every token sees every token.", "Vaswani et al. 2017"),
    Example("causal()", causal(), "Itself and what comes before.", "Vaswani et al. 2017"),
    Example("window(3)", window(3), "Fewer than 3 tokens away, on both sides.", _LONGFORMER),
    Example("causal() & window(4)", causal() & window(4), "The last 4 tokens.", "Jiang et al. 2023, Mistral"),
    Example("dilated(3, 2)", dilated(3, 2), "A window with gaps: every second token, 3 of them back.", _LONGFORMER),
    Example("causal() & strided(4)", causal() & strided(4), "The last 4, and every fourth before.", _SPARSE),
    Example("causal() & fixed(4)", causal() & fixed(4), "Its block of 4, and the last of each block.", _SPARSE),
    Example("blocks(4)", blocks(4), "Its own block of 4: block-diagonal.", "Qiu et al. 2020, BlockBERT"),
    Example(
        "causal() & chunks(4)", causal() & chunks(4), "The past, from its chunk's beginning.", "Meta 2025, Llama 4"
    ),
    Example("chunks(4, 1, 1)", chunks(4, 1, 1), "Its chunk, the one before, the one after.", _BIGBIRD),
    Example("random_blocks(2, 2)", random_blocks(2, 2), "Blocks of 2: each draws 2 of those before it.", _BIGBIRD),
    Example(
        "BigBird(size=2, random=1, seed=1)",
        BigBird(size=2, random=1, seed=1),
        "Blocks: neighbors, the first, the last, and one at random.",
        _BIGBIRD,
    ),
    Example("sinks(2)", sinks(2), "The first 2 tokens.", _STREAMING),
    Example(
        "causal() & (window(4) | sinks(1))",
        causal() & (window(4) | sinks(1)),
        "The last 4 tokens and the first.",
        _STREAMING,
    ),
    Example("causal() | prefix(4)", causal() | prefix(4), "The past and all of a prefix.", "Raffel et al. 2020, T5"),
    Example(
        "window(3) | global_tokens(1)",
        window(3) | global_tokens(1),
        "A window, and a token that sees all and is seen by all.",
        _LONGFORMER,
    ),
    Example("causal() & documents()", causal() & documents(), "The past of its own document.", "Krell et al. 2021"),
    Example(
        "causal() | media()",
        causal() | media(),
        "The past, and the whole picture that it is part of; here without pictures.",
        "Gemma Team 2025, Gemma 3",
    ),
    Example("grid_windows(3)", grid_windows(3), "Its square of 3 × 3 places.", "Liu et al. 2021, Swin"),
    Example("neighborhood(3)", neighborhood(3), "3 × 3 places of an image.", "Ramachandran et al. 2019"),
    Example("axial()", axial(), "Its row and its column of an image.", "Ho et al. 2019"),
    Example(
        "by_head(window(3), dilated(3, 3))",
        by_head(window(3), dilated(3, 3)),
        "Heads in turn: the first as drawn, the second with gaps.",
        _LONGFORMER,
    ),
    Example("causal() & ~window(3)", causal() & ~window(3), "The past without the last 3 tokens.", ""),
)
