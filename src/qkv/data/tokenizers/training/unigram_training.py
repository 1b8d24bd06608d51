"""Training of a unigram language model over pieces by expectation maximization and pruning (Kudo 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from .unigram_lattice import CorpusLattice, Floats, Ints
from .unigram_seeds import UnigramCorpus, corpus_lattice, piece_lattice, seeds

SUB_ITERATIONS = 2  # EM iterations before each pruning, SentencePiece's `num_sub_iterations`
SHRINKING_FACTOR = 0.75  # share of the pieces that a pruning keeps, SentencePiece's `shrinking_factor`
SPARE = 1.1  # pruning stops at this multiple of `size`; the most probable `size` pieces of these are returned
RARE = 0.5  # a piece with a smaller expected count is dropped


def train(counts: Mapping[str, int], size: int, longest: int = 16) -> list[tuple[str, float]]:
    """Return pieces and their log-probabilities, in descending order.

    The probability of a segmentation is the product of its pieces' probabilities. Training starts from the frequent
    substrings, and alternates between EM iterations and pruning. Pruning removes the quarter of the pieces whose removal
    reduces the likelihood of the corpus least (Kudo 2018, section 3.2).

    counts:  the number of occurrences of each word
    size:    the maximum number of pieces; every character is a piece, even if there are more characters
    longest: the maximum number of characters of a piece; pieces of more than LONGEST are never made
    """
    corpus = UnigramCorpus.of(counts)
    model = UnigramModel.of(corpus, longest)
    while True:
        for _ in range(SUB_ITERATIONS):
            model = model.maximized()
        model = model.without_rare()
        smallest = max(int(size * SPARE), model.characters)
        if len(model.lengths) <= smallest:
            return model.most_probable(size)
        model = model.pruned(smallest)


@dataclass
class UnigramModel:
    """Pieces with log-probabilities, and the segmentations of the words of a corpus into them.

    characters: how many of the pieces are single characters; these come first and are never dropped
    places:     where in the corpus each piece occurs
    own:        the segmentations of the pieces themselves, without the whole pieces; and the piece of each word of this
                lattice, −1 for dropped ones
    """

    corpus: UnigramCorpus
    characters: int
    places: Ints
    lengths: Ints
    log_probabilities: Floats
    lattice: CorpusLattice
    own: tuple[CorpusLattice, Ints] | None = None

    @classmethod
    def of(cls, corpus: UnigramCorpus, longest: int) -> UnigramModel:
        """Start from the seeds, with probabilities proportional to the number of characters that they cover."""
        found = seeds(corpus, longest)
        lengths = np.repeat([each.length for each in found], [len(each.counts) for each in found])
        places = np.concatenate([each.first for each in found])
        covered = np.concatenate([each.counts for each in found]) * lengths
        lattice = corpus_lattice(corpus, found)
        return cls(corpus, len(found[0].counts), places, lengths, np.log(covered / covered.sum()), lattice)

    def maximized(self) -> UnigramModel:
        """Run an EM iteration. Pieces with an expected count below RARE get probability 0.

        The M-step gives log p = ψ(c) − ψ(Σ c) for expected counts c, as in variational Bayes, which favors few pieces.
        """
        counts, _ = self.lattice.expected_counts(self.log_probabilities, self.lengths, self.corpus.weights)
        counts[: self.characters] = np.maximum(counts[: self.characters], RARE)
        often = counts >= RARE
        log_probabilities = np.full(len(counts), -np.inf)
        log_probabilities[often] = _digamma(counts[often]) - _digamma(counts[often].sum())
        return replace(self, log_probabilities=log_probabilities)

    def without_rare(self) -> UnigramModel:
        """Drop the pieces of probability 0."""
        return self._keep(np.isfinite(self.log_probabilities))

    def pruned(self, size: int) -> UnigramModel:
        """Keep the pieces whose removal would reduce the likelihood most: SHRINKING_FACTOR of all, but at least `size`."""
        model = self.with_own()
        loss = model.losses()
        stays = np.zeros(len(loss), bool)
        stays[np.argsort(-loss, kind="stable")[: max(size, int(SHRINKING_FACTOR * len(loss)))]] = True
        return model._keep(stays & (loss > -np.inf))

    def with_own(self) -> UnigramModel:
        """Add the segmentations of the pieces if they are missing: most seeds are rare, and never need them."""
        if self.own is not None:
            return self
        return replace(self, own=piece_lattice(self.corpus, self.lattice, self.places, self.lengths))

    def losses(self) -> Floats:
        """Return the decrease of the mean log-likelihood of a word if each piece were removed; ∞ for characters.

        In the most probable segmentations, piece x occurs f times among F pieces. Without it, these f become the n
        pieces y of its most probable segmentation. With W words that is

            f / W · [log f − log F − Σ_y (log(f_y + f) − log(F + f · (n − 1)))]

        It is −∞ for a piece that does not occur, or that is less probable than its segmentation and so will never be used.
        """
        assert self.own is not None
        lattice, owners = self.own
        weights, number = self.corpus.weights, len(self.lengths)
        _, words, used = self.lattice.most_probable(self.log_probabilities)
        frequency = np.bincount(used, weights[words], number)
        total = frequency.sum()
        apart, words, parts = lattice.most_probable(self.log_probabilities)
        owner = owners[words]
        extra = np.bincount(owner, minlength=number) - 1
        f = np.maximum(frequency, 1e-300)
        replaced = np.log(f[parts] + f[owner]) - np.log(total + f[owner] * extra[owner])
        loss = frequency / weights.sum() * (np.log(f / total) - np.bincount(owner, replaced, number))
        alive = owners >= 0
        unused = owners[alive][apart[alive] > self.log_probabilities[owners[alive]]]
        loss[frequency == 0] = -np.inf
        loss[unused] = -np.inf
        loss[: self.characters] = np.inf
        return loss

    def _keep(self, stays: NDArray[np.bool_]) -> UnigramModel:
        """Keep some of the pieces."""
        number = np.where(stays, np.cumsum(stays) - 1, -1)
        own = self.own
        if own is not None:
            renumbered = np.where(own[1] >= 0, number[own[1]], -1)
            own = own[0].keep(number, renumbered >= 0), renumbered
        return replace(
            self,
            places=self.places[stays],
            lengths=self.lengths[stays],
            log_probabilities=self.log_probabilities[stays],
            lattice=self.lattice.keep(number),
            own=own,
        )

    def most_probable(self, size: int) -> list[tuple[str, float]]:
        """Return the characters and the most probable pieces, `size` in total."""
        pieces = self.corpus.texts(self.places, self.lengths)
        order = sorted(range(len(pieces)), key=lambda i: (-self.log_probabilities[i], pieces[i]))
        longer = [i for i in order if i >= self.characters][: max(size - self.characters, 0)]
        kept = {*range(self.characters), *longer}
        return [(pieces[i], float(self.log_probabilities[i])) for i in order if i in kept]


def _digamma(counts: Floats | np.float64) -> Floats:
    """ψ(c) = Γ'(c) / Γ(c)."""
    values: Floats = torch.digamma(torch.as_tensor(counts, dtype=torch.float64)).numpy()
    return values
