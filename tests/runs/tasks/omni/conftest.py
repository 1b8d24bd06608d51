"""Sums of digits in any medium, and the task that reads them."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.data.any_digits import AnyDigits
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.words_chars_bytes import Word
from qkv.io.families import preset
from qkv.runs.tasks.omni.numbers import SoundNumbers
from qkv.runs.tasks.omni.task import Omni

TEMPLATE = "{{ eos_token }}{% for message in messages %}{{ message.content ~ eos_token }}{% endfor %}"


@pytest.fixture(scope="session")
def sizes() -> dict[str, Any]:
    """Sizes of a small joint model."""
    media = {"image": (8, 8), "patch": (4, 4), "channels": 1, "sound": (8, 16), "sound_patch": 4}
    return {**media, "series": 48, "series_patch": 8, "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16}


@pytest.fixture(scope="session")
def source() -> AnyDigits:
    return AnyDigits(train=60, length=48, sounds={"kind": "made-speech", "shortest": 1, "longest": 1, "train": 40})


@pytest.fixture(scope="session")
def tokenizer(source: AnyDigits) -> Tokenizer:
    spec = Word(special=Omni.special, chat_template=TEMPLATE, bos=None)
    return train(spec, [text for one in source.examples() for text in Omni().texts(one)])


@pytest.fixture(scope="session")
def task(source: AnyDigits, tokenizer: Tokenizer, sizes: dict[str, Any]) -> Omni:
    inputs = preset("joint", vocab_size=tokenizer.vocab_size, **sizes).output.embedding
    return Omni(sound=SoundNumbers(mask=0.0)).resolve(source, tokenizer, inputs)
