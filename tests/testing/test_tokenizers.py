"""Checks of tokenizers pass for qkv's own and find wrong ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.spec import TokenizerSpec, Trace
from qkv.testing import Report, check

KINDS = ("bpe", "unigram", "wordpiece", "word", "char", "byte")
SETTINGS: list[dict[str, Any]] = [
    {},
    {"lowercase": True, "normalization": "nfkc"},
    {"pad": "[PAD]", "unk": "[UNK]", "bos": "[CLS]", "eos": "[SEP]", "mask": "[MASK]"},
    {"special": ["<fr>", "<en>"]},
    {"byte_fallback": True, "byte_level": False},
    {"byte_fallback": True},
    {"split_digits": True, "dropout": 0.1},
]
CASES = [
    {"kind": kind, **settings}
    for kind, settings in itertools.product(KINDS, SETTINGS)
    if settings.keys() <= TokenizerSpec.kinds[kind].model_fields.keys()
    and (kind, settings) != ("bpe", {"byte_fallback": True})  # for BPE over characters alone
]


def outcomes(report: Report) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks}


def test_each_kind_has_a_case() -> None:
    own = {kind for kind, cls in TokenizerSpec.kinds.items() if cls.__module__.startswith("qkv.")}
    assert own == {*KINDS, "file"}


@pytest.mark.parametrize("settings", CASES, ids=lambda settings: " ".join(map(str, settings.values())))
def test_own_tokenizers_pass(settings: dict[str, Any]) -> None:
    report = check(TokenizerSpec.from_dict(settings))
    report.raise_for_failures()
    assert set(outcomes(report).values()) == {"passed"}


def test_a_tokenizer_from_a_file_passes(tmp_path: Path) -> None:
    path = train("char", ["the dog and the cat"]).save(tmp_path / "tokenizer.json")
    report = check(TokenizerSpec.from_dict({"kind": "file", "path": str(path)}))
    report.raise_for_failures()
    assert outcomes(report)["special tokens"] == outcomes(report)["markers"] == "not checked"


class Letters(TokenizerSpec, kind="mutant-letters"):
    """A correct tokenizer of ASCII, which the wrong ones below change in one place."""

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Split("", "isolated")

    def decoder(self) -> decoders.Decoder:
        return decoders.Fuse()

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        tokens = [*self.names, *map(chr, range(32, 127))]
        return models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=self.unk)


class LastNames(Letters, kind="mutant-last-names"):
    """Special tokens come after the letters."""

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        tokens = [*map(chr, range(32, 127)), *self.names]
        return models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=self.unk)


class Growing(Letters, kind="mutant-growing"):
    """Each training rotates the vocabulary further."""

    def learn(self, texts: Iterable[str], trace: Trace | None = None) -> models.Model:
        start = next(TRAININGS)
        letters = [chr(32 + (start + i) % 95) for i in range(95)]
        return models.WordLevel({t: i for i, t in enumerate([*self.names, *letters])}, unk_token=self.unk)


TRAININGS = itertools.count()


class Swelling(Letters, kind="mutant-swelling"):
    """Decoding doubles a letter."""

    def decoder(self) -> decoders.Decoder:
        return decoders.Sequence([decoders.Replace("e", "ee"), decoders.Fuse()])


class Markers(Letters, kind="mutant-markers"):
    """Adds its control tokens as markers, which are read from text."""

    def train(self, texts: Iterable[str], trace: Trace | None = None) -> Tokenizer:
        pipeline = self.pipeline(self.learn(texts, trace))
        names = [AddedToken(name, special=False, normalized=False) for name in self.names]
        pipeline.add_tokens(names)
        return pipeline


class Blind(Letters, kind="mutant-blind"):
    """Does not read the markers."""

    def train(self, texts: Iterable[str], trace: Trace | None = None) -> Tokenizer:
        pipeline = self.pipeline(self.learn(texts, trace))
        pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in self.names])
        return pipeline


class Empty(Letters, kind="mutant-empty"):
    """Its normalizer removes every character."""

    def normalizer(self) -> normalizers.Normalizer:
        return normalizers.Replace(Regex("[\\s\\S]"), "")


def test_the_right_one_passes() -> None:
    check(Letters()).raise_for_failures()


@pytest.mark.parametrize(
    "part, failure, reason",
    [
        (LastNames(), "special tokens", "a vocabulary begins with `names`"),
        (Growing(), "trained twice = once", "training again on the same texts gives other ids"),
        (Swelling(), "decodes", "is decoded to"),
        (Markers(), "special tokens", "the tokenizer has no pad"),
        (Blind(), "markers", "the marker in '<de> the dog' is read 0 times, not once"),
        (Empty(), "trains", "no training text has a single token"),
    ],
    ids=lambda value: value.kind if isinstance(value, TokenizerSpec) else "",
)
def test_wrong_tokenizers_fail(part: TokenizerSpec, failure: str, reason: str) -> None:
    reasons = {failed.name: failed.reason for failed in check(part).failures}
    assert reason in reasons.get(failure, ""), reasons
