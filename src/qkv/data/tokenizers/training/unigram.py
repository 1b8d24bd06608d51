"""Unigram language model tokenization (Kudo 2018), as in SentencePiece."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import PositiveInt, model_validator
from tokenizers import decoders, models, pre_tokenizers

from ..pipelines import count_metaspace_words
from .spec import SubwordSpec, Trace, VocabSize, prepend_scheme, refuse_trace, require_unk


class Unigram(SubwordSpec, kind="unigram"):
    """A unigram language model over pieces (Kudo 2018, SentencePiece): the most probable segmentation is chosen.

    p(x₁ … xₙ) = Π p(xᵢ) for pieces xᵢ. `unigram_training` finds pieces and probabilities. Log-probabilities are rounded to
    six decimals, because later digits differ between machines.
    """

    vocab_size: VocabSize = 8000
    prefix_space: bool = True
    """Put a space before the first word, so it is treated like the others."""
    max_piece_length: PositiveInt = 16
    """In characters. Training never makes pieces of more than 32, as it reads longer words in parts of 32."""

    @model_validator(mode="after")
    def _has_unk(self) -> Self:
        return require_unk(self)

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return self._digits_apart(pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme(self.prefix_space)))

    def decoder(self) -> decoders.Decoder:
        return self._metaspace_decoder(self.prefix_space)

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        refuse_trace(self, trace)
        from . import unigram_training  # imports scipy

        pipeline = self.pipeline(models.Unigram())
        words = count_metaspace_words(texts, pipeline, self.prefix_space)
        characters = {character for word in words for character in word}
        self._check_size(self.vocab_size, len(characters) + len(self.fallback))
        own = [*self.names, *self.fallback]
        pieces = unigram_training.train(words, self.vocab_size - len(own), self.max_piece_length)
        scored = sorted(((piece, round(score, 6)) for piece, score in pieces), key=lambda item: (-item[1], item[0]))
        vocabulary = [*((name, 0.0) for name in own), *scored]
        return models.Unigram(vocabulary, self.names.index(self.unk or ""), self.byte_fallback)
