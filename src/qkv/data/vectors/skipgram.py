"""Skip-gram with negative sampling (Mikolov et al. 2013, "Distributed representations of words and phrases and their
compositionality"), in matrix products over blocks of running text.

For a word w with a context word c and k words n drawn from the noise distribution P(n) ∝ count(n)^¾, the objective is

    maximize log σ(v_w · u_c) + k · E_{n ~ P} log σ(−v_w · u_n)

A block is `BLOCK` consecutive words. All their scores against the block's words and a window around them are one product, in
which a mask selects the pairs. All words of a block share its noise words (Ji et al. 2016, "Parallelizing Word2Vec in shared
and distributed memory"), weighted like `negatives` noise words for each pair. So a row of a table is read and written once
for several pairs, which would otherwise take most of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from ..shuffle import mix
from .training import Progress, VectorCorpus, VectorMethod
from .word_vectors import Vectors

BLOCK = 32  # words
NOISE = 32  # noise words in a block
_BLOCKS = 16  # blocks in one step, at most
_STALE = 8  # expected occurrences of the most frequent word in one step, at most: their updates use the same old vector
_LEAST = 1e-4  # the final share of the learning rate


class SkipGram(VectorMethod, kind="skipgram"):
    """negatives: noise words for each pair; power: the exponent of their distribution.
    subsample: t. A word of frequency f is kept with probability min(1, √(t/f) + t/f), as in the authors' program (the paper
               has √(t/f)), before windows are cut, so these reach further; 0 keeps every word.

    The window of each word is random, 1 … `window`, so near words have more weight. The learning rate decays linearly.
    """

    negatives: int = Field(default=5, ge=1)
    subsample: float = Field(default=1e-3, ge=0, allow_inf_nan=False)
    power: float = Field(default=0.75, ge=0, allow_inf_nan=False)

    def train(self, corpus: VectorCorpus, *, seed: int = 0, progress: Progress | None = None) -> Vectors:
        random = torch.Generator().manual_seed(mix(seed) >> 1)
        v = (torch.rand(len(corpus.words), self.width, generator=random) - 0.5) / self.width
        u = torch.zeros_like(v)
        keep = self._keep(corpus)
        noise = _cumulative(torch.from_numpy(corpus.counts).double() ** self.power)
        blocks = _blocks_at_once(corpus, keep)
        for epoch in range(self.epochs):
            text = _Text.draw(corpus, keep, self.window, random)
            for done, step in text.steps(blocks, random):
                share = (epoch + done) / self.epochs
                drawn = torch.rand(len(step.centers), NOISE, generator=random, dtype=torch.float64)
                _update(v, u, step, torch.searchsorted(noise, drawn), self.negatives, self.lr * max(1 - share, _LEAST))
                if progress is not None:
                    progress(share)
        return Vectors(corpus.words, v.numpy())

    def _keep(self, corpus: VectorCorpus) -> Float[Tensor, " V"]:
        """The probability with which each word stays."""
        counts = torch.from_numpy(corpus.counts).double()
        if not self.subsample:
            return torch.ones_like(counts)
        ratio = self.subsample * counts.sum() / counts
        return (ratio.sqrt() + ratio).clamp(max=1)


@dataclass(frozen=True, eq=False)
class _Step:
    """The blocks of one step: their words, the words that their windows may reach, and which of these are pairs."""

    centers: Int[Tensor, "B L"]
    around: Int[Tensor, "B H"]
    pairs: Bool[Tensor, "B L H"]


@dataclass(frozen=True, eq=False)
class _Text:
    """The text of one epoch in blocks; `reach` is the random window of each word, 0 in the padding of the last block."""

    window: int
    ids: Int[Tensor, "N H"]
    sentences: Int[Tensor, "N H"]
    reach: Int[Tensor, "N L"]

    @classmethod
    def draw(cls, corpus: VectorCorpus, keep: Float[Tensor, " V"], window: int, random: torch.Generator) -> _Text:
        ids = torch.from_numpy(corpus.ids).long()
        kept = torch.rand(len(ids), generator=random) < keep.float()[ids]
        ids, sentences = ids[kept], torch.from_numpy(corpus.sentences)[kept]
        filled = max(BLOCK - len(ids), -len(ids) % BLOCK)

        def blocks(values: Tensor, fill: int) -> Tensor:
            padded = torch.nn.functional.pad(values, (window, window + filled), value=fill)
            return padded.unfold(0, BLOCK + 2 * window, BLOCK)

        reach = torch.randint(1, window + 1, ids.shape, generator=random)
        reach = torch.nn.functional.pad(reach, (0, filled)).view(-1, BLOCK)
        return cls(window, blocks(ids, 0), blocks(sentences, -1), reach)

    def steps(self, blocks: int, random: torch.Generator) -> Iterator[tuple[float, _Step]]:
        """Steps of `blocks` blocks in random order, each with the share of the epoch before it."""
        size, w = BLOCK + 2 * self.window, self.window
        distance = (torch.arange(size) - torch.arange(w, w + BLOCK)[:, None]).abs()
        distance[distance == 0] = size  # no word is its own context
        order = torch.randperm(len(self.reach), generator=random)
        for begin in range(0, len(order), blocks):
            chosen = order[begin : begin + blocks]
            around, sentences, reach = self.ids[chosen], self.sentences[chosen], self.reach[chosen]
            same = sentences[:, w : w + BLOCK, None] == sentences[:, None, :]
            pairs = same & (distance <= reach[:, :, None])
            yield begin / len(order), _Step(around[:, w : w + BLOCK], around, pairs)


def _update(v: Tensor, u: Tensor, step: _Step, noise: Int[Tensor, "B K"], negatives: int, lr: float) -> None:
    """One step of gradient ascent; rows that occur several times get the sum of their updates."""
    outputs = torch.cat([step.around, noise], 1)
    a, b = _rows(v, step.centers), _rows(u, outputs)
    weight = a.new_empty(*step.centers.shape, outputs.shape[1])
    real, size = step.pairs.to(a.dtype), step.around.shape[1]
    weight[..., :size] = real
    weight[..., size:] = real.sum(-1, keepdim=True) * (negatives / noise.shape[1])
    slope = torch.bmm(a, b.mT).sigmoid_().mul_(weight).neg_()
    slope[..., :size] += real
    _add(v, step.centers, torch.bmm(slope, b), lr)
    _add(u, outputs, torch.bmm(slope.mT, a), lr)


def _rows(table: Tensor, ids: Int[Tensor, "B N"]) -> Float[Tensor, "B N E"]:
    return table.index_select(0, ids.flatten()).view(*ids.shape, -1)


def _add(table: Tensor, ids: Int[Tensor, "B N"], change: Float[Tensor, "B N E"], lr: float) -> None:
    table.index_add_(0, ids.flatten(), change.flatten(0, 1), alpha=lr)


def _cumulative(weights: Float[Tensor, " V"]) -> Float[Tensor, " V"]:
    """The cumulative distribution of these weights, for sampling with `searchsorted`."""
    summed = weights.cumsum(0) / weights.sum()
    summed[-1] = 1.0
    return summed


def _blocks_at_once(corpus: VectorCorpus, keep: Float[Tensor, " V"]) -> int:
    expected = torch.from_numpy(corpus.counts).double() * keep
    share = float(expected.max() / expected.sum())
    return int(np.clip(_STALE / (share * BLOCK), 1, _BLOCKS))
