"""Byte-pair encoding (BPE): the tokenizer kind `bpe`, and the merge algorithm as in the paper (Sennrich et al. 2016).

The `tokenizers` library learns the merges. `bpe_steps` is a readable version of the same algorithm for
`qkv tokenizer train --trace`; tests check that both learn the same merges. It also trains with `ties: lexicographic`,
which the library does not offer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Literal, Self

from pydantic import PositiveInt, model_validator
from tokenizers import decoders, models, pre_tokenizers, trainers

from ..pipelines import byte_symbols, contents, count_words
from .pair_merges import MergeStep, Pair, SymbolWords
from .spec import SubwordSpec, Trace, VocabSize, prepend_scheme, require_unk

Ties = Literal["oldest", "lexicographic"]
"""Which of equally frequent pairs BPE merges first: the one with the older symbols (characters by code point, then merged
symbols in the order of their merges), as in the `tokenizers` library; or the lexicographically greatest."""


def bpe_steps(
    counts: Mapping[str, int],
    merges: int,
    min_frequency: int = 1,
    ties: Ties = "oldest",
    spelled: Callable[[str], Any] = str,
) -> Iterator[MergeStep]:
    """Byte-pair encoding: repeatedly merge the most frequent pair (Sennrich et al. 2016, arXiv:1508.07909).

    `spelled` is the key by which lexicographic order compares symbols, such as the bytes that they stand for. Stops after
    `merges` new symbols, or when no remaining pair occurs `min_frequency` times.
    """
    words = SymbolWords(counts)
    age = {symbol: i for i, symbol in enumerate(sorted(words.symbols))}
    limit = len(age) + merges

    def entry(pair: Pair) -> tuple[int, Any, Pair]:
        left, right = pair
        rank = (age[left], age[right]) if ties == "oldest" else _Greatest((spelled(left), spelled(right)))
        return -words.pairs[pair], rank, pair

    waiting = [entry(pair) for pair in words.pairs]
    heapify(waiting)
    while len(age) < limit and waiting:
        count, _, pair = heappop(waiting)
        if -count != words.pairs[pair]:
            continue  # an outdated count: the heap has the new one, too
        if -count < max(1, min_frequency):
            return
        step, changed = words.step(pair, -count)
        age.setdefault(step.token, len(age))
        for other in changed:
            if words.pairs[other] > 0:
                heappush(waiting, entry(other))
        yield step


class _Greatest:
    """Reverses the order of a value, so a heap returns the greatest first."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Greatest) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Greatest) and self.value == other.value


class BPE(SubwordSpec, kind="bpe"):
    """Byte-pair encoding (Sennrich et al. 2016), over bytes as in GPT-2 (Radford et al. 2019) or over characters.

    Byte level: every text is encoded without loss. Character level: a space becomes `▁` at the start of the next word, as
    in SentencePiece; characters that the training texts lack are unknown, or bytes with `byte_fallback`.
    """

    vocab_size: VocabSize = 8000
    min_frequency: PositiveInt = 2
    """Pairs that occur less often are not merged."""
    byte_level: bool = True
    prefix_space: bool | None = None
    """Put a space before the first word, so it is treated like the others. None: yes at character level; byte level
    never does."""
    ties: Ties = "oldest"
    """Which of equally frequent pairs is merged first: `oldest`, the one with the older symbols, as in the `tokenizers`
    library; or `lexicographic`, the greatest pair of bytes, which with `min_frequency: 1` gives the merges of textbook
    implementations."""

    @model_validator(mode="after")
    def _one_level(self) -> Self:
        if self.byte_level and (self.byte_fallback or self.prefix_space):
            field = "byte_fallback" if self.byte_fallback else "prefix_space"
            raise ValueError(f"{field} is for BPE over characters; set byte_level to false, or leave it out")
        if not self.byte_level and not self.byte_fallback:
            require_unk(self)
        return self

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        if self.byte_level:
            return self._digits_apart(pre_tokenizers.ByteLevel(add_prefix_space=False))
        return self._digits_apart(
            pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme(self.prefix_space is not False))
        )

    def decoder(self) -> decoders.Decoder:
        return decoders.ByteLevel() if self.byte_level else self._metaspace_decoder(self.prefix_space is not False)

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        texts = list(texts) if trace else texts
        symbols, merges = self._merged(texts, trace) if self.ties == "lexicographic" else self._trained(texts, trace)
        vocabulary = {token: i for i, token in enumerate([*self.names, *self.fallback, *symbols])}
        unk = None if self.byte_level else self.unk
        return models.BPE(vocabulary, merges, unk_token=unk, byte_fallback=self.byte_fallback)

    def _merged(self, texts: Iterable[str], trace: Trace | None) -> tuple[list[str], list[Pair]]:
        """Return symbols and merges, learned by `bpe_steps`."""
        counts = count_words(texts, self.pipeline(models.BPE()))
        alphabet = sorted(byte_symbols()) if self.byte_level else sorted({symbol for word in counts for symbol in word})
        self._check_size(self.vocab_size, len(alphabet) + len(self.fallback))
        room = self.vocab_size - len(self.names) - len(self.fallback) - len(alphabet)
        steps = list(bpe_steps(counts, room, self.min_frequency, "lexicographic", _bytes if self.byte_level else str))
        if trace is not None:
            for step in steps:
                trace(step)
        tokens = dict.fromkeys([*alphabet, *(step.token for step in steps)])
        return list(tokens), [(step.left, step.right) for step in steps]

    def _trained(self, texts: Iterable[str], trace: Trace | None) -> tuple[list[str], list[Pair]]:
        """Return symbols and merges, learned by the library."""
        raw = self.pipeline(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=max(self.vocab_size - len(self.fallback), 0),
            min_frequency=self.min_frequency,
            special_tokens=self.names,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if self.byte_level else [],
            show_progress=False,
        )
        raw.train_from_iterator(texts, trainer)
        learned = contents(raw.model)
        symbols = list(learned["vocab"])[len(self.names) :]
        self._check_size(self.vocab_size, len(symbols) + len(self.fallback))
        merges = [(left, right) for left, right in learned["merges"]]
        if trace:
            merged = sum(len(token) > 1 for token in symbols)
            for step in bpe_steps(count_words(texts, raw), merged, self.min_frequency):
                trace(step)
        return symbols, merges


_BYTE_OF = {symbol: byte for byte, symbol in enumerate(byte_symbols())}


def _bytes(symbol: str) -> bytes:
    return bytes(_BYTE_OF[character] for character in symbol)
