"""Word-level, character-level and byte-level tokenizers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Self

from pydantic import PositiveInt, model_validator
from tokenizers import decoders, models, pre_tokenizers, trainers

from ..pipelines import byte_symbols, contents, normalized
from .spec import ByteFallbackSpec, TokenizerSpec, Trace, VocabSize, refuse_trace, require_unk


class Word(TokenizerSpec, kind="word"):
    """Words between spaces: the most frequent form the vocabulary, and all others are unknown."""

    vocab_size: VocabSize = 50_000
    """At most; the most frequent words are kept."""
    min_frequency: PositiveInt = 1
    punctuation: bool = False
    """Split punctuation off words; decoding puts spaces around it."""

    @model_validator(mode="after")
    def _has_unk(self) -> Self:
        return require_unk(self)

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Whitespace() if self.punctuation else pre_tokenizers.WhitespaceSplit()

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        refuse_trace(self, trace)
        self._check_size(self.vocab_size, 1)
        raw = self.pipeline(models.WordLevel(unk_token=self.unk))
        trainer = trainers.WordLevelTrainer(
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
            special_tokens=self.names,
            show_progress=False,
        )
        raw.train_from_iterator(texts, trainer)
        return models.WordLevel(contents(raw.model)["vocab"], unk_token=self.unk)


class Char(ByteFallbackSpec, kind="char"):
    """Characters (Unicode code points), including spaces."""

    vocab_size: VocabSize = 50_000
    """At most; the most frequent characters are kept."""
    min_frequency: PositiveInt = 1

    @model_validator(mode="after")
    def _never_silent(self) -> Self:
        return self if self.byte_fallback else require_unk(self)

    def decoder(self) -> decoders.Decoder:
        spelled = [decoders.ByteFallback()] if self.byte_fallback else []
        return decoders.Sequence([*spelled, decoders.Fuse()])

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        refuse_trace(self, trace)
        self._check_size(self.vocab_size, len(self.fallback) + 1)
        counts = Counter[str]()
        for text in normalized(texts, self.pipeline(models.BPE())):
            counts.update(text)
        seen = sorted((c for c, n in counts.items() if n >= self.min_frequency), key=lambda c: (-counts[c], c))
        kept = seen[: self.vocab_size - len(self.names) - len(self.fallback)]
        vocabulary = {token: i for i, token in enumerate([*self.names, *self.fallback, *kept])}
        return models.BPE(vocabulary, [], unk_token=self.unk, byte_fallback=self.byte_fallback)


class Byte(TokenizerSpec, kind="byte"):
    """The 256 bytes of UTF-8 (Xue et al. 2021, ByT5): nothing to learn, nothing unknown, nothing lost."""

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def decoder(self) -> decoders.Decoder:
        return decoders.ByteLevel()

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        refuse_trace(self, trace)
        return models.BPE({token: i for i, token in enumerate([*self.names, *byte_symbols()])}, [])
