"""Settings of tokenizers, and what all kinds share in training."""

from __future__ import annotations

from typing import Any

import pytest
from made_tokenizers import CONTROLS, SPECS, TEXTS, made
from tokenizers import models, pre_tokenizers

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.data.tokenizers.training.wordpiece import WordPiece
from qkv.data.tokenizers.training.words_chars_bytes import Byte

every = pytest.mark.parametrize("name", SPECS)


@every
def test_ids_begin_with_the_declared_tokens(name: str) -> None:
    tokenizer = made(name)
    assert [tokenizer.id(token) for token in [*CONTROLS, "<de>", "<2en>"]] == list(range(7))
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )


def test_markers_leave_no_trace_in_what_is_learned() -> None:
    plain, marked = ["cats mats"] * 5, ["<de>cats <de>mats"] * 5
    spec = BPE(vocab_size=60, byte_level=False, special=("<de>",), prefix_space=False)
    assert train(spec, marked).raw.get_vocab() == train(spec, ["cats ", "mats"] * 5).raw.get_vocab()
    assert "<" not in train(spec, marked).raw.get_vocab() and train(spec, plain).markers == ("<de>",)


@pytest.mark.parametrize("name", ["bpe", "bpe-characters", "bpe-fallback", "wordpiece", "unigram", "unigram-fallback"])
def test_vocab_size_too_small_names_the_smallest(name: str) -> None:
    with pytest.raises(ValueError, match=r"set it to \d+ or more") as error:
        train(SPECS[name].replace(vocab_size=7), TEXTS)
    least = int(str(error.value).split("set it to ")[1].split(" ")[0])
    tokenizer = train(SPECS[name].replace(vocab_size=least), TEXTS)
    assert tokenizer.vocab_size <= least
    with pytest.raises(ValueError, match=f"set it to {least} or more"):
        train(SPECS[name].replace(vocab_size=least - 1), TEXTS)


@every
def test_vocab_size_is_kept_and_may_not_be_reached(name: str) -> None:
    spec = SPECS[name]
    assert train(spec, TEXTS).vocab_size <= getattr(spec, "vocab_size", 260)
    if name != "byte":
        small = train(spec.replace(vocab_size=9000), TEXTS[:4])
        assert small.vocab_size < 9000 and small.decode(small.encode("the cats")) == "the cats"


@every
def test_nothing_to_learn_from(name: str) -> None:
    if name == "byte":
        assert train(Byte(), []).vocab_size == 260
        return
    for nothing in ([], ["", "  "]):
        with pytest.raises(ValueError, match="the texts are empty"):
            train(SPECS[name], nothing)
    with pytest.raises(ValueError, match="one string"):
        train(SPECS[name], "a text")


def test_lowercase_and_normalization() -> None:
    tokenizer = train(BPE(vocab_size=300, lowercase=True, normalization="nfkc"), ["the ﬁne cat"])
    assert tokenizer.decode(tokenizer.encode("THE ﬁne Cat")) == "the fine cat"
    accents = train(WordPiece(vocab_size=100, lowercase=True), ["élan naïve"])
    assert accents.decode(accents.encode("Élan NAÏVE")) == "elan naive"


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"kind": "bpf"}, "did you mean 'bpe'"),
        ({"kind": "bpe", "pad": "<padding>"}, "pad: '<padding>' is not a known name for pad"),
        ({"kind": "bpe", "special": ["<de>", "<de>"]}, "'<de>' is given twice"),
        ({"kind": "bpe", "special": ["<s>"]}, "'<s>' is given twice"),
        ({"kind": "bpe", "special": ["a b"]}, "not 'a b'"),
        ({"kind": "bpe", "special": ["<0x41>"]}, "not '<0x41>'"),
        ({"kind": "bpe", "byte_fallback": True}, "byte_fallback is for BPE over characters"),
        ({"kind": "bpe", "prefix_space": True}, "prefix_space is for BPE over characters"),
        ({"kind": "bpe", "byte_level": False, "unk": None}, "needs an unk token"),
        ({"kind": "word", "unk": None}, "needs an unk token"),
        ({"kind": "bpe", "vocab_size": 0}, "vocab_size: input should be greater than or equal to 1"),
        ({"kind": "byte", "vocab_size": 300}, "vocab_size: no such field"),
    ],
)
def test_specs_that_make_no_sense(given_: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as error:
        TokenizerSpec.from_dict(given_)
    assert says in str(error.value)


def test_a_bare_kind_that_is_none() -> None:
    with pytest.raises(ValueError, match="did you mean 'word'"):
        train("words", TEXTS)


def test_a_kind_from_outside() -> None:
    class Vowels(TokenizerSpec, kind="vowels-test"):
        def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
            return pre_tokenizers.Split("", "isolated")

        def learn(self, texts: Any, trace: Any = None) -> models.Model:
            return models.WordLevel({name: i for i, name in enumerate([*self.names, *"aeiou"])}, unk_token="<unk>")

    try:
        tokenizer = train("vowels-test", [])
        assert tokenizer.decode(tokenizer.encode("a cat", eos=True)) == "a <unk> <unk> a <unk>"
    finally:
        del TokenizerSpec.kinds["vowels-test"]


@pytest.mark.parametrize("spec", [{"kind": "bpe"}, {"kind": "bpe", "byte_level": False}, {"kind": "unigram"}])
def test_every_digit_on_its_own(spec):
    texts = ["in 2023 and 2024", "10:20 and 2023"] * 30
    tokenizer = train(TokenizerSpec.from_dict({**spec, "vocab_size": 400, "split_digits": True}), iter(texts))
    for text in [*texts[:2], "2023"]:
        pieces = tokenizer.tokens(tokenizer.encode(text))
        assert [p for p in pieces if any(c.isdigit() for c in p)] == [c for c in text if c.isdigit()]
        assert tokenizer.decode(tokenizer.encode(text)) == text
