"""Strings of spoken words: one speaker each, speakers held out, the same strings again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.data.media import audio
from qkv.data.media.audio import wave_of
from qkv.data.readers.audio import Sounds
from qkv.data.source import Skipped
from qkv.data.spoken_strings import SpokenStrings

RATE = 8000


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Sounds:
    """Digits by three speakers, each as loud as no other."""
    folder = tmp_path_factory.mktemp("digits")
    for number, name in enumerate(("ann", "bob", "eve"), 1):
        for digit in "012":
            for take in range(4):
                wave = np.full(80, number / 10, np.float32)
                (folder / f"{digit}_{name}_{take}.wav").write_bytes(audio.encode(wave, RATE))
    return Sounds(path=str(folder), label="([0-9])_[a-z]+", validation="_0[.]wav", test="_1[.]wav")


def made(words: Sounds, **settings: Any) -> SpokenStrings:
    sizes = {"train": 20, "validation": 6, "test": 6, "pause": 0.01}
    return SpokenStrings(words=words, speaker="_([a-z]+)_", **{**sizes, **settings})


def levels(source: SpokenStrings, split: Any) -> set[int]:
    """Which speakers are heard: 1, 2, 3; a string of several would be found by its levels."""
    found = set()
    for example in source.examples(split, shuffle=False):
        sound = wave_of(example)
        assert not isinstance(sound, Skipped)
        loud = {round(float(x) * 10) for x in sound[0] if x > 0.01}
        assert len(loud) == 1 and 3 <= len(example["text"].split()) <= 7
        found |= loud
    return found


def test_each_string_has_one_speaker_and_held_out_ones_are_the_test(words: Sounds) -> None:
    source = made(words, held_out="eve")
    assert levels(source, "train") | levels(source, "validation") == {1, 2}
    assert levels(source, "test") == {3}
    assert "speakers by file names: 2 for train, 2 for validation, 1 for test" in source.notes()


def test_strings_may_mix_speakers_in_training(words: Sounds) -> None:
    source = made(words, mixed=1.0, held_out="eve", longest=7)

    def voices(split: Any) -> list[int]:
        sounds = [wave_of(example) for example in source.examples(split, shuffle=False)]
        return [len({round(float(x) * 10) for x in sound[0] if x > 0.01}) for sound in sounds if sound]

    assert 2 in voices("train") and set(voices("validation")) == {1} == set(voices("test"))
    assert made(words).joined([{"audio": np.ones(80, np.float32), "rate": r} for r in (RATE, 2 * RATE)], 0).sum() > 100


def test_training_strings_are_new_in_each_epoch_and_others_the_same(words: Sounds) -> None:
    source = made(words)

    def texts(split: Any, epoch: int) -> list[str]:
        return [one["text"] for one in source.examples(split, epoch=epoch, shuffle=False)]

    assert texts("train", 0) == texts("train", 0) != texts("train", 1)
    assert texts("test", 0) == texts("test", 1)


def test_what_cannot_be_put_together_is_refused(words: Sounds) -> None:
    with pytest.raises(ValueError, match="longest \\(2\\) is less than shortest \\(3\\)"):
        made(words, longest=2)
    with pytest.raises(ValueError, match="held_out names speakers"):
        SpokenStrings(words=words, held_out=("eve",))
    with pytest.raises(ValueError, match="no sound is by a speaker of the test split"):
        made(words, held_out="zoe").table("test")
    with pytest.raises(ValueError, match="finds no speaker in this file name"):
        made(words).replace(speaker="no-such").table("train")
