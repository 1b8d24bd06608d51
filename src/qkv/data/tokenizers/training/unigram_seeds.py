"""The substrings with which training of a unigram model begins, and where they occur in the words of a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .unigram_lattice import CorpusLattice, Flags, Floats, Ints

LONGEST = 32
"""The maximum number of characters of a word. Longer words are split into parts of this length."""
SEED_SIZE = 1_000_000  # SentencePiece's `seed_sentencepiece_size`


@dataclass
class UnigramCorpus:
    """Distinct words, or parts of LONGEST characters of them, in order of descending length, in one array of characters.

    weights:  number of occurrences of each word
    starts:   index of the first character of each word
    codes:    the words' characters, as indices in `alphabet`
    word:     word of each character
    offset:   index of each character in its word
    """

    weights: Floats
    lengths: Ints
    starts: Ints
    codes: Ints
    alphabet: list[str]
    word: Ints
    offset: Ints

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> UnigramCorpus:
        parts: dict[str, int] = {}
        for word, count in counts.items():
            for begin in range(0, len(word), LONGEST):
                part = word[begin : begin + LONGEST]
                parts[part] = parts.get(part, 0) + count
        words = sorted(parts, key=lambda word: (-len(word), word))
        points = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
        used, codes = np.unique(points, return_inverse=True)
        lengths = np.array([len(word) for word in words], np.int64)
        weights = np.array([parts[word] for word in words], np.float64)
        word_of = np.repeat(np.arange(len(words)), lengths)
        starts = np.cumsum(lengths) - lengths
        offset = np.arange(len(codes)) - starts[word_of]
        return cls(weights, lengths, starts, codes, [chr(point) for point in used.tolist()], word_of, offset)

    def texts(self, places: Ints, lengths: Ints) -> list[str]:
        """Return the substrings of these lengths that start at `places`."""
        text = "".join([self.alphabet[code] for code in self.codes.tolist()])
        return [text[place : place + length] for place, length in zip(places.tolist(), lengths.tolist(), strict=True)]


class Occurrences(NamedTuple):
    """Where substrings of one length occur.

    length: in characters
    first:  place of the first occurrence of each substring
    counts: occurrences of each, in distinct words
    place:  of every occurrence: the index of its first character in the corpus
    piece:  the substring that occurs there
    """

    length: int
    first: Ints
    counts: Ints
    place: Ints
    piece: Ints

    def select(self, stays: Flags) -> Occurrences:
        """Keep some of the substrings, and number them again."""
        number = np.where(stays, np.cumsum(stays) - 1, -1)
        piece = number[self.piece]
        here = piece >= 0
        return Occurrences(self.length, self.first[stays], self.counts[stays], self.place[here], piece[here])


def seeds(corpus: UnigramCorpus, longest: int) -> list[Occurrences]:
    """All characters, and the SEED_SIZE substrings of up to `longest` characters with the largest count × length.

    A substring that occurs once, or is followed by the same character wherever it occurs, is left out.
    """
    found = _repeated(corpus, longest)
    scores = np.concatenate([each.counts * each.length for each in found[1:]]) if found[1:] else np.zeros(0)
    chosen = np.zeros(len(scores), bool)
    chosen[np.argsort(-scores, kind="stable")[:SEED_SIZE]] = True
    bounds = np.cumsum([len(each.counts) for each in found[1:]])
    masks = np.split(chosen, bounds[:-1]) if found[1:] else []
    return [found[0], *(each.select(mask) for each, mask in zip(found[1:], masks, strict=True))]


def _repeated(corpus: UnigramCorpus, longest: int) -> list[Occurrences]:
    """The characters, then the repeated substrings of each length. Substrings are numbered by the number of their
    beginning, one character shorter, and their last character."""
    room = corpus.lengths[corpus.word] - corpus.offset  # characters to the end of the word
    place, piece = np.arange(len(corpus.codes)), corpus.codes.astype(np.int64)
    _, first, count = np.unique(piece, return_index=True, return_counts=True)
    found = [Occurrences(1, first, count, place, piece)]
    for length in range(2, longest + 1):
        fits = room[place] >= length
        place, piece = place[fits], piece[fits]
        keys = piece * len(corpus.alphabet) + corpus.codes[place + length - 1]
        key, index, piece, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        if length > 2:
            always = np.zeros(len(found[-1].counts), np.int64)  # occurrences of the most frequent continuation
            np.maximum.at(always, key // len(corpus.alphabet), count)
            branches = always < found[-1].counts
            found[-1] = found[-1].select(branches)
        if not len(key):
            break
        here = Occurrences(length, place[index], count, place, piece).select(count > 1)
        found.append(here)
        place, piece = here.place, here.piece
    return found


def corpus_lattice(corpus: UnigramCorpus, found: list[Occurrences]) -> CorpusLattice:
    """The segmentations of the words into these pieces, which are numbered in order."""
    edges, base = [], 0
    for each in found:
        edges.append((corpus.word[each.place], corpus.offset[each.place], each.length, base + each.piece))
        base += len(each.counts)
    return CorpusLattice.of(corpus.lengths, edges)


def piece_lattice(
    corpus: UnigramCorpus, lattice: CorpusLattice, places: Ints, lengths: Ints
) -> tuple[CorpusLattice, Ints]:
    """The segmentations of the pieces of two characters or more into two parts or more, and the piece of each word of that
    lattice. They are read off the lattice of the corpus, at a place where each piece occurs."""
    owner = np.argsort(-lengths, kind="stable")[: int((lengths > 1).sum())]
    places, own_lengths = places[owner], lengths[owner]
    longest = int(own_lengths[0]) if len(owner) else 0
    words, offsets = lattice.places(lattice.start)
    starts = corpus.starts[words] + offsets
    length_of = lengths[lattice.piece]
    edges = []
    for length in range(1, longest):
        piece_at = np.full(len(corpus.codes), -1, np.int64)
        here = length_of == length
        piece_at[starts[here]] = lattice.piece[here]
        for offset in range(longest - length + 1):
            own = np.arange(np.searchsorted(-own_lengths, -(offset + length), side="right"))  # words that reach so far
            if offset == 0:
                own = own[own_lengths[own] > length]
            piece = piece_at[places[own] + offset]
            there = piece >= 0
            edges.append((own[there], np.full(int(there.sum()), offset), length, piece[there]))
    return CorpusLattice.of(own_lengths, edges), owner
