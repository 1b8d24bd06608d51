"""Lattices of all segmentations of words into pieces: expected counts of pieces, and the most probable segmentations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass
class CorpusLattice:
    """A lattice for each word: its nodes are the places between characters, its edges the pieces between two nodes.

    Words are in order of descending length, so the words with a node at offset t come first. Their nodes at t have the
    numbers row[t], row[t] + 1, …. Edges are sorted by the node at which they end.

    lengths:    of the words, in characters
    row:        number of the first node at each offset
    piece:      piece of each edge
    start, end: nodes of each edge
    """

    lengths: Ints
    row: Ints
    piece: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, lengths: Ints, edges: list[tuple[Ints, Ints, int, Ints]]) -> CorpusLattice:
        """Build lattices from the edges of each length: (words, start offsets, length, pieces)."""
        width = np.searchsorted(-lengths, -np.arange(lengths.max(initial=0) + 1), side="right")
        row = np.concatenate([[0], np.cumsum(width)])
        ends = [row[offset + length] + word for word, offset, length, _ in edges]
        slot = np.zeros(row[-1] + 1, np.int64)  # of a node's next edge: a counting sort, which needs no comparisons
        for end in ends:
            slot[end + 1] += 1
        slot = np.cumsum(slot)
        number = int(slot[-1])
        piece, start, sorted_end = (np.empty(number, np.int64) for _ in range(3))
        for (word, offset, _, pieces), end in zip(edges, ends, strict=True):
            at = slot[end]
            slot[end] += 1  # edges of one length have different ends
            piece[at], start[at], sorted_end[at] = pieces, row[offset] + word, end
        return cls(lengths, row, piece, start, sorted_end)

    def keep(self, number: Ints, words: Flags | None = None) -> CorpusLattice:
        """Drop the edges of some pieces and words. `number` has the new number of each piece, or −1; `words` tells which
        words stay."""
        piece = number[self.piece]
        stays = piece >= 0
        if words is not None:
            stays &= words[self.places(self.end)[0]]
        return CorpusLattice(self.lengths, self.row, piece[stays], self.start[stays], self.end[stays])

    def places(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return the words and offsets of nodes."""
        offset = np.repeat(np.arange(len(self.row) - 1), np.diff(self.row))[nodes]
        return nodes - self.row[offset], offset

    @property
    def last(self) -> Ints:
        """The final node of each word."""
        return self.row[self.lengths] + np.arange(len(self.lengths))

    @cached_property
    def _steps(self) -> list[tuple[slice, Ints, Ints]]:
        """Edges grouped by the offset at which they end: (slice of edges, first edge of each node in the slice, nodes)."""
        bounds = np.searchsorted(self.end, self.row)
        steps = []
        for low, high in itertools.pairwise(bounds[1:].tolist()):
            ends = self.end[low:high]
            first = np.flatnonzero(np.diff(ends, prepend=-1))
            steps.append((slice(low, high), first, ends[first]))
        return [step for step in steps if len(step[1])]

    def expected_counts(self, log_probabilities: Floats, lengths: Ints, weights: Floats) -> tuple[Floats, float]:
        """Return the expected count of each piece, summed over the weighted words (E-step, forward–backward algorithm).

        In a word of probability Z, the expected count of an edge from i to j with piece x is α_i · p(x) · β_j / Z. Here
        α is the probability of all segmentations up to a node, and β the probability of all after it. Also returns Σ
        weight · log Z.

        Probabilities are multiplied by cᴸ for a piece of L characters, which leaves counts unchanged and keeps words of
        up to some 30 characters within the range of float64.
        """
        scale = -float(np.median((log_probabilities / lengths)[np.isfinite(log_probabilities)]))
        probability = np.exp(log_probabilities + scale * lengths)[self.piece]
        steps, nodes = self._steps, int(self.row[-1])
        alpha, beta = np.zeros(nodes), np.zeros(nodes)
        alpha[: len(self.lengths)] = 1.0
        forward = np.empty(len(self.piece))
        for edges, first, ends in steps:
            np.multiply(alpha[self.start[edges]], probability[edges], out=forward[edges])
            alpha[ends] = np.add.reduceat(forward[edges], first)
        total = alpha[self.last]
        beta[self.last] = weights / total
        for edges, _, _ in reversed(steps):
            after = beta[self.end[edges]]
            forward[edges] *= after
            # Edges that end at the same offset start at different nodes, so no index occurs twice.
            beta[self.start[edges]] += after * probability[edges]
        counts = np.bincount(self.piece, forward, len(log_probabilities)).astype(np.float64)
        return counts, float(weights @ (np.log(total) - scale * self.lengths))

    def most_probable(self, log_probabilities: Floats) -> tuple[Floats, Ints, Ints]:
        """Find the most probable segmentation of each word (Viterbi).

        Returns its log-probability for each word, −∞ if there is none, and the words and pieces of all segmentations, last
        pieces first. Of equally probable segmentations, the one with the shortest last piece is taken.
        """
        score = np.full(int(self.row[-1]), -np.inf)
        score[: len(self.lengths)] = 0.0
        best = np.full(len(score), -1, np.int64)  # edge by which a node is reached
        log_probability = log_probabilities[self.piece]
        for edges, first, ends in self._steps:
            scores = score[self.start[edges]] + log_probability[edges]
            score[ends] = np.maximum.reduceat(scores, first)
            chosen = np.flatnonzero(scores == score[self.end[edges]])[::-1]  # of equals the first is assigned last
            best[self.end[edges][chosen]] = edges.start + chosen
        at = self.last
        total = score[at]
        words, pieces = [at[:0]], [at[:0]]
        word = np.flatnonzero(np.isfinite(total))
        at = at[word]
        while len(word):
            edge = best[at]
            words.append(word)
            pieces.append(self.piece[edge])
            at = self.start[edge]
            more = at >= self.row[1]  # nodes at offset 0 come first
            word, at = word[more], at[more]
        return total, np.concatenate(words), np.concatenate(pieces)
