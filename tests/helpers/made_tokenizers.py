"""Tokenizers of every kind, trained on a few made sentences, for the tests of this room."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.data.tokenizers.training.unigram import Unigram
from qkv.data.tokenizers.training.wordpiece import WordPiece
from qkv.data.tokenizers.training.words_chars_bytes import Byte, Char, Word

TEXTS = [
    "the cat sat on the mat, and the cats ate.",
    "a mate of the cat: mates, mats; hats!",
    "die Straße ist naß und größer als gedacht",
    "<s> is written like this </s> and <pad> like that <s>",
] * 3
CONTROLS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]

SPECS: dict[str, TokenizerSpec] = {
    "bpe": BPE(vocab_size=330),
    "bpe-characters": BPE(vocab_size=120, byte_level=False),
    "bpe-fallback": BPE(vocab_size=370, byte_level=False, byte_fallback=True),
    "wordpiece": WordPiece(vocab_size=120),
    "unigram": Unigram(vocab_size=100),
    "unigram-fallback": Unigram(vocab_size=340, byte_fallback=True),
    "word": Word(),
    "word-punctuation": Word(punctuation=True),
    "char": Char(),
    "char-fallback": Char(byte_fallback=True),
    "byte": Byte(),
}
LOSSLESS = ["bpe", "byte", "char-fallback"]
NEVER_UNKNOWN = [*LOSSLESS, "bpe-fallback", "unigram-fallback"]


@cache
def made(name: str) -> Tokenizer:
    return train(SPECS[name].replace(mask="<mask>", special=("<de>", "<2en>")), TEXTS)


anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.sampled_from([*CONTROLS, "<0x41>", "<0xFF>", "<", "s>", "/s>", " ", "a"])
hostile = st.lists(names, max_size=8).map("".join)
