"""Tokenizer training, one file per kind: BPE, WordPiece, unigram, words, characters, bytes. Importing it registers them."""

from . import bpe, unigram, wordpiece, words_chars_bytes

__all__ = ["bpe", "unigram", "wordpiece", "words_chars_bytes"]
