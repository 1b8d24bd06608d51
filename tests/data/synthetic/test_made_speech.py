"""Made speech: words that are spelled by sounds, the same for the same seed, new in each epoch."""

from __future__ import annotations

import numpy as np

from qkv.data.synthetic.made_speech import WORDS, MadeSpeech


def test_strings_are_words_and_sounds_as_long_as_their_letters() -> None:
    source = MadeSpeech(train=6)
    for example in source.examples("train", shuffle=False):
        wave, words = example["audio"](), example["text"].split()
        assert 2 <= len(words) <= 5 and {*words} <= {*WORDS}
        assert wave.dtype == np.float32 and np.abs(wave).max() < 1.2
        assert 0.04 < len(wave) / source.rate / len(example["text"]) < 0.15


def test_sounds_are_the_same_for_the_same_seed() -> None:
    source = MadeSpeech(train=2)
    first, again, other = (source.table("train", epoch=epoch)[0] for epoch in (0, 0, 1))
    assert isinstance(first, dict) and isinstance(again, dict) and isinstance(other, dict)
    assert first["text"] == again["text"] and np.array_equal(first["audio"](), again["audio"]())
    assert not np.array_equal(first["audio"](), other["audio"]())
