"""Checks of tokenizers, trained on a few sentences: special tokens, batches, decoding, training twice, saving."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cached_property

from ..data.tokenizers.tokenizer import Tokenizer, train
from ..data.tokenizers.training.spec import TokenizerSpec
from .report import NotChecked

SENTENCES = (
    "the quick brown fox jumps over the lazy dog",
    "a cat and a dog sat on the mat, and the cat slept",
    "Tokens are numbers: 3 of 10, or 42.",
    "naïve café, Straße, Ελλάδα, 東京 and 🙂",
)
TEXTS = (*SENTENCES, "", " ", "two  spaces", " a space before and after ", "unseen: ж ☃ zyx", "line\nand\ttab")
MARKER = "<de>"


def tokenizer_checks(spec: TokenizerSpec) -> dict[str, Callable[[], None]]:
    checks = TokenizerChecks(spec)
    return {
        "trains": checks.trains,
        "special tokens": checks.special_tokens,
        "no special tokens from text": checks.plain_text,
        "batch = single": checks.batch,
        "decodes": checks.decodes,
        "markers": checks.markers,
        "trained twice = once": checks.trained_twice,
        "saved = loaded": checks.saved,
    }


class TokenizerChecks:
    """The checks of one tokenizer spec."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self.spec = spec

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return train(self.spec, list(SENTENCES) * 4)

    def trains(self) -> None:
        """Training gives a vocabulary, and every text ids in it."""
        tokenizer = self.tokenizer
        for text in TEXTS:
            ids = tokenizer.encode(text)
            odd = [i for i in ids if not 0 <= i < tokenizer.vocab_size]
            assert not odd, f"{text!r} has the id {odd[:1]}, outside the vocabulary of {tokenizer.vocab_size}"
        assert any(tokenizer.encode(text) for text in SENTENCES), "no training text has a single token"

    def special_tokens(self) -> None:
        """Control tokens and markers have the first ids, in the order of `names`, and none is shared."""
        names, tokenizer = self.spec.names, self.tokenizer
        if self.spec.kind == "file":
            raise NotChecked("the tokenizer is read from a file, which numbers its special tokens itself")
        ids = {name: tokenizer.raw.token_to_id(name) for name in names}
        expected = {name: i for i, name in enumerate(names)}
        assert ids == expected, f"special tokens have the ids {ids}, not {expected}; a vocabulary begins with `names`"
        roles = {
            role: getattr(tokenizer, f"{role}_id") for role in ("pad", "unk", "bos", "eos") if getattr(self.spec, role)
        }
        missing = [role for role, i in roles.items() if i is None]
        assert not missing, f"the tokenizer has no {' and no '.join(missing)} token, though the spec names one"

    def plain_text(self) -> None:
        """The name of a control token in a text is spelled out like any other word."""
        tokenizer = self.tokenizer
        if not tokenizer.controls:
            raise NotChecked("it has no control tokens")
        controls = set(tokenizer.controls.values()) - {tokenizer.unk_id}
        for name in tokenizer.controls:
            for text in (name, f"the {name} dog", f"dog{name}"):
                read = controls.intersection(tokenizer.encode(text))
                assert not read, f"the text {text!r} is read as the control token {tokenizer.tokens([read.pop()])[0]!r}"

    def batch(self) -> None:
        """A text has the same ids alone, in a batch, and after other texts."""
        tokenizer = self.tokenizer
        batch = tokenizer.encode_batch(list(TEXTS))
        for text, ids in zip(TEXTS, batch, strict=True):
            assert tokenizer.encode(text) == ids, f"{text!r} has other ids alone than in a batch"
        backward = tokenizer.encode_batch(list(reversed(TEXTS)))
        assert backward[::-1] == batch, "ids depend on the other texts of the batch"

    def decodes(self) -> None:
        """A decoded text without unknown tokens is decoded to itself, and control tokens around a text are left out."""
        tokenizer = self.tokenizer
        for text in TEXTS:
            ids = tokenizer.encode(text)
            decoded = tokenizer.decode(ids)
            if tokenizer.unk_id not in ids:
                again = tokenizer.decode(tokenizer.encode(decoded))
                assert again == decoded, f"{text!r} is decoded to {decoded!r}, and that to {again!r}"
            ends = [i for i in (tokenizer.bos_id, tokenizer.eos_id) if i is not None]
            framed = tokenizer.decode([*ends[:1], *ids, *ends[1:]])
            assert framed == decoded, f"{text!r} between control tokens is decoded to {framed!r}, not {decoded!r}"
            assert not text.strip() or not ids or decoded.strip(), f"{text!r} has ids, but is decoded to nothing"

    def markers(self) -> None:
        """A marker is one id wherever it stands, and is written back."""
        if self.spec.kind == "file":
            raise NotChecked("the tokenizer is read from a file, which has its own markers")
        tokenizer = train(self.spec.replace({"special": (*self.spec.special, MARKER)}), list(SENTENCES) * 4)
        marker = tokenizer.id(MARKER)
        for text in (f"{MARKER} the dog", f"the{MARKER}dog"):
            ids = tokenizer.encode(text)
            assert ids.count(marker) == 1, f"the marker in {text!r} is read {ids.count(marker)} times, not once"
            assert MARKER in tokenizer.decode(ids), f"decoding {text!r} loses the marker"

    def trained_twice(self) -> None:
        """Training again on the same texts gives the same tokenizer."""
        again = train(self.spec, list(SENTENCES) * 4)
        same = again.encode_batch(list(TEXTS)) == self.tokenizer.encode_batch(list(TEXTS))
        assert same, "training again on the same texts gives other ids"

    def saved(self) -> None:
        """A tokenizer that is saved and loaded, or sent to a worker process, has the same ids and texts."""
        batch = self.tokenizer.encode_batch(list(TEXTS))
        copies = {
            "loaded from its file": Tokenizer.from_json(self.tokenizer.to_json()),
            "sent to a worker process": pickle.loads(pickle.dumps(self.tokenizer)),
        }
        for how, copied in copies.items():
            assert copied.encode_batch(list(TEXTS)) == batch, f"{how}, it gives other ids"
            assert copied.decode_batch(batch) == self.tokenizer.decode_batch(batch), f"{how}, it decodes differently"
            assert copied.roles == self.tokenizer.roles, f"{how}, it has other special tokens"
