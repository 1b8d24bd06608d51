"""Unigram language model tokenization (Kudo 2018), as in SentencePiece."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import PositiveInt, model_validator

from tokenizers import decoders, models, pre_tokenizers, trainers

from ..pipelines import canonical_pieces, collecting_characters, contents, normalized
from .spec import SubwordSpec, Trace, VocabSize, prepend_scheme, refuse_trace, require_unk


class Unigram(SubwordSpec, kind="unigram"):
    """A unigram language model over pieces (Kudo 2018, SentencePiece): the most probable segmentation is chosen."""

    vocab_size: VocabSize = 8000
    prefix_space: bool = True
    """Put a space before the first word, so that it is treated like the others."""
    max_piece_length: PositiveInt = 16

    @model_validator(mode="after")
    def _has_unk(self) -> Self:
        return require_unk(self)

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return self._digits_apart(pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme(self.prefix_space)))

    def decoder(self) -> decoders.Decoder:
        return self._metaspace_decoder(self.prefix_space)

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        refuse_trace(self, trace)
        raw = self.pipeline(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=max(self.vocab_size - len(self.fallback), 0),
            special_tokens=self.names,
            unk_token=self.unk,
            max_piece_length=self.max_piece_length,
            show_progress=False,
        )
        characters = set("▁") if self.prefix_space else set()
        try:
            raw.train_from_iterator(collecting_characters(normalized(texts, raw), characters), trainer)
        finally:  # the library's own error doesn't name the smallest vocab_size
            self._check_size(self.vocab_size, len(characters) + len(self.fallback))
        scored = canonical_pieces(
            contents(raw.model)["vocab"][len(self.names) :], self.vocab_size - len(self.names) - len(self.fallback)
        )
        vocabulary = [*((name, 0.0) for name in [*self.names, *self.fallback]), *scored]
        return models.Unigram(vocabulary, self.names.index(self.unk or ""), self.byte_fallback)
