"""A word in several contexts: how its vector moves by layer, and which other words move it.

The vector h_l of a word after layer l is the mean of the residual stream over its tokens; the static vector is the mean of
their embeddings, without positions. Two things are measured:

    alike_l = cos(h_l, h'_l)                        between two contexts, and between the word and its static vector
    moved_l = 1 − cos(h_l, h_l without w)           by another word w of the context

`without w` is the same pass in which no token sees the tokens of w, and all others keep their positions (occlusion; the
attention knockout of Geva et al. 2023, in all layers). Unlike an attention weight, it counts what w does through other words
as well; unlike a gradient, it is no extrapolation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...core.layout import Layout
from ...nn.activations import record, sites
from ...nn.activations.sites import select
from ...nn.models.stack import StackModule

ROWS = 64  # occlusions in one pass


@dataclass(frozen=True, eq=False)
class Occurrence:
    """A word in a sequence that a stack reads: ids and layout of one row, the tokens of the word and of other words."""

    ids: Int[Tensor, "1 T"]
    layout: Layout
    word: tuple[int, ...]
    others: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class WordContexts:
    """Measurements of C contexts in L layers; index 0 of `vectors` is the static vector.

    others: mean cosine between tokens of other words, which says how alike any two vectors of a layer are.
    moved:  of each context, by layer and other word. apart: by how much the word would be more like itself in the other
            contexts, on average after the last layer, without that other word.
    """

    vectors: Float[Tensor, "L+1 C M"]
    others: Float[Tensor, " L+1"]
    moved: tuple[Float[Tensor, "L W"], ...]
    apart: tuple[Float[Tensor, " W"], ...]

    @property
    def alike(self) -> Float[Tensor, "L+1 C C"]:
        """Cosine of the word's vectors in each two contexts."""
        unit = nn.functional.normalize(self.vectors, dim=-1)
        return unit @ unit.mT

    @property
    def static(self) -> Float[Tensor, "L C"]:
        """Cosine of the word's vectors and its static vector, after each layer."""
        return nn.functional.cosine_similarity(self.vectors[1:], self.vectors[:1], dim=-1)


@torch.inference_mode()
def word_contexts(model: nn.Module, stack: str, contexts: Sequence[Occurrence]) -> WordContexts:
    """Measure a word in at least two contexts, in passes of one stack of a model, "encoder" or "decoder"."""
    whole = [_states(model, stack, one.ids, one.layout)[:, 0] for one in contexts]
    vectors = torch.stack([_mean(x, one.word) for x, one in zip(whole, contexts, strict=True)], 1)
    moved, apart = [], []
    for i, one in enumerate(contexts):
        hidden = _without(model, stack, one)  # (L, W, M)
        own, rest = vectors[1:, i, None], [j for j in range(len(contexts)) if j != i]
        moved.append(1 - nn.functional.cosine_similarity(hidden, own, dim=-1))
        before, after = (
            nn.functional.cosine_similarity(x[:, None], vectors[-1, None, rest], dim=-1).mean(1)
            for x in (own[-1], hidden[-1])
        )
        apart.append(after - before)
    return WordContexts(vectors, _others(whole, contexts), tuple(moved), tuple(apart))


def _states(model: nn.Module, stack: str, ids: Tensor, layout: Layout) -> Float[Tensor, "L+1 B T M"]:
    """The static embeddings, and the residual stream after each layer."""
    module = getattr(model, stack)
    assert isinstance(module, StackModule)
    names = [site.name for site in select(sites(model), [f"{stack}.layers.*.output"])]
    with record(model, names) as seen:
        module(ids, layout)
    static = module.embedding(ids, None)
    return torch.stack([static.expand_as(seen[names[0]]), *(seen[name] for name in names)]).float()


def _without(model: nn.Module, stack: str, context: Occurrence) -> Float[Tensor, "L W M"]:
    """The word's vectors after each layer without each other word: its tokens are padding there."""
    if not context.others:
        return _states(model, stack, context.ids, context.layout)[1:, :0, 0]
    found = []
    for start in range(0, len(context.others), ROWS):
        some = context.others[start : start + ROWS]
        positions = context.layout.positions.expand(len(some), -1, -1).clone()
        for row, tokens in enumerate(some):
            positions[row, list(tokens)] = -1
        hidden = replace(
            context.layout, positions=positions, padding="mixed", start=None, lengths=None, sequential=False
        )
        states = _states(model, stack, context.ids.expand(len(some), -1), hidden)[1:]
        found.append(_mean(states, context.word))
    return torch.cat(found, 1)


def _mean(states: Float[Tensor, "... T M"], tokens: Sequence[int]) -> Float[Tensor, "... M"]:
    return states[..., list(tokens), :].mean(-2)


def _others(whole: Sequence[Float[Tensor, "L+1 T M"]], contexts: Sequence[Occurrence]) -> Float[Tensor, " L+1"]:
    """The mean cosine between tokens with different ids, of all words but the one that is compared."""
    kept = [[token for word in one.others for token in word] for one in contexts]
    ids = torch.cat([one.ids[0, tokens] for one, tokens in zip(contexts, kept, strict=True)])
    unit = nn.functional.normalize(torch.cat([x[:, tokens] for x, tokens in zip(whole, kept, strict=True)], 1), dim=-1)
    different = ids[:, None] != ids[None, :]
    return (unit @ unit.mT)[:, different].mean(-1)
