"""Bug 6 of those that others shipped: cache capacity."""

from __future__ import annotations

import pytest
import torch
from every import call, every_decoder
from small import (
    LONGEST,
    ids,
    model,
    same,
)

from qkv.core.layout import Layout
from qkv.nn.positions.absolute import Learned, Sinusoidal


@every_decoder
def test_bug_06_a_cache_grows_past_its_capacity(family: str) -> None:
    """More tokens than there was room for change nothing; past the model's context there is an error and no wrap."""
    built = model(family, position=Learned())
    tokens = ids(2, LONGEST, seed=1)
    source = {"source": ids(1, 4, seed=9).expand(2, -1)} if family == "encoder-decoder" else {"batch_size": 2}
    cache = built.start(**source, capacity=5)
    with torch.no_grad():
        found = [built.step(tokens[:, :3], cache, all_positions=True)]
        found += [built.step(tokens[:, t : t + 1], cache, all_positions=True) for t in range(3, LONGEST)]
    same(torch.cat(found, 1), call(built, tokens))
    with pytest.raises(ValueError, match="context"):
        built.step(tokens[:, :1], cache)


def test_bug_06_a_ragged_batch_does_not_overflow_the_context() -> None:
    """The longest of left-padded rows comes to the end of the context: a clear error, as with rows of equal length."""
    built = model("decoder", position=Learned())
    cache = built.start(2)
    with torch.no_grad():
        built.step(ids(2, LONGEST - 1), cache, Layout.from_lengths([5, LONGEST - 1], side="left"))
        built.step(ids(2, 1), cache)
        with pytest.raises(ValueError, match="context"):
            built.step(ids(2, 1), cache)


def test_bug_06_decoding_continues_where_the_prompt_ends() -> None:
    """A prompt that begins at a later position is continued at the position after its last."""
    built, tokens = model("decoder", position=Sinusoidal()), ids(1, 5)
    cache = built.start(1)
    with torch.no_grad():
        built.step(tokens[:, :3], cache, Layout.full(3, start=7))
        found = torch.stack([built.step(tokens[:, t : t + 1], cache) for t in (3, 4)], 1)
    same(found, built(tokens, layout=Layout.full(5, start=7))[:, 3:])


def test_bug_06_rewinding_a_ragged_batch_into_its_padding() -> None:
    """Rows that have no token left begin again at position 0."""
    built, tokens, new = model("decoder", position=Sinusoidal()), ids(2, 6), ids(2, 1, seed=5)
    cache = built.start(2)
    with torch.no_grad():
        built.step(tokens, cache, Layout.from_lengths([3, 6], side="left"))
        cache.rewind(4)
        found = built.step(new, cache)
    same(found[0], built(new[:1])[0, -1])
    same(found[1], built(torch.cat([tokens[1:, :2], new[1:]], 1))[0, -1])
