"""The watch of `--verbose`: the first token's time, and the rate."""

from __future__ import annotations

import qkv
from qkv.generation.pace import Pace, chosen, watched


def test_the_first_token_counts() -> None:
    with watched() as pace:
        chosen()
        first = pace.first
        chosen()
    assert first is not None and pace.ended is not None and pace.began <= first == pace.first <= pace.ended
    chosen()
    assert pace.first == first


def test_the_pace_is_told_in_seconds_and_tokens() -> None:
    assert Pace(0.0, 0.5, 4.0).text(1000) == "first token after 0.50 s, 1,000 tokens at 250.0 tokens/s"
    assert Pace(0.0, None, 4.0).text(0) == "no token was generated"


def test_every_search_is_watched() -> None:
    model = qkv.build(qkv.preset("gpt", vocab_size=9, d_model=8, n_layers=1, n_heads=1, d_ff=8), seed=0)
    for options in ({}, {"num_beams": 2}, {"speculate": "lookup"}):
        with watched() as pace:
            model.generate([[1, 2]], max_new_tokens=3, **options)
        assert pace.first is not None
