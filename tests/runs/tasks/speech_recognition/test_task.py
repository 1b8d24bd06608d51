"""Speech recognition: how sounds are read, augmented and normalized, and what is skipped and told."""

from __future__ import annotations

import numpy as np
import pytest
from spoken_examples import EVALUATION, FRONT, RATE, TOKENIZER, example, source, task

from qkv.data.source import Skipped
from qkv.data.task import RandomContext
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Char
from qkv.nn.layers.patches import Patches
from qkv.nn.layers.waveform import Waveform
from qkv.runs.tasks.speech_recognition.ctc import RecognizeCTC


def test_rate_mean_and_deviation_come_from_the_training_sounds() -> None:
    made = RecognizeCTC().resolve(source(example("one"), example("two"), example("one", rate=16000)), TOKENIZER, FRONT)
    assert made.rate == RATE and made.front == FRONT and made.mean is not None and made.std
    features = made.features(example("one")["audio"])
    assert features.shape == (8, 50) and abs(features.mean()) < 1
    with pytest.raises(ValueError, match="reads sound, and this model reads patches"):
        RecognizeCTC().resolve(source(), TOKENIZER, Patches())
    with pytest.raises(ValueError, match="no sound that can be read"):
        RecognizeCTC().resolve(source({"audio": b"", "text": "x"}), TOKENIZER, FRONT)


def test_whisper_is_not_tuned_on_other_spectrograms() -> None:
    theirs = train(Char(special=["<|startoftranscript|>"]), ["one"])
    with pytest.raises(
        ValueError, match="Whisper reads other spectrograms and prompts than the task recognize-ctc makes"
    ):
        RecognizeCTC().resolve(source(example("one")), theirs, FRONT)


def test_rates_clipped_sounds_and_unknown_symbols_are_told() -> None:
    notes = task().check_inputs(source(example("öne ö", rate=16000), example("two", loud=9.0)), TOKENIZER)
    assert notes == [
        "of 2 training sounds that were looked at, 1 of 16,000 Hz are resampled to 8,000 Hz",
        "of 2 training sounds that were looked at, 1 is clipped: stretches of samples are at full scale",
        "1 of 2 transcripts hold symbols that the vocabulary lacks, read as unknown: 'ö' 2 ×",
    ]


def test_sounds_fill_their_last_token_and_fit_into_the_model() -> None:
    found = task(mask=0.0).read(example("one", 0.37), EVALUATION)
    assert not isinstance(found, Skipped)
    features, tokens = found
    assert features.shape == (8, 40) and tokens == 10 and not features[:, 37:].any() and features[:, 36].any()
    assert task().read(example("one", 4.5), EVALUATION) == "longer than the 400 frames that the model reads"


def test_waveforms_have_mean_0_and_deviation_1() -> None:
    made = RecognizeCTC(front=Waveform(widths=(4,), kernels=(10,), strides=(5,)), rate=RATE)
    features, tokens = made.read(example("one", 0.01), EVALUATION)
    assert features.shape == (2, 80) and tokens == 15 and features[1].all()
    assert features[0].mean() == pytest.approx(0, abs=1e-5) and features[0].std() == pytest.approx(1, abs=1e-3)


def test_training_sounds_are_augmented_and_others_are_not() -> None:
    plain = task(mask=0.0)
    changed = task(mask=0.0, augment=[{"kind": "speed"}, {"kind": "vocal-tract"}, {"kind": "white-noise"}])
    one = example("one")

    def read(made: RecognizeCTC, training: bool, seed: int = 0) -> np.ndarray:
        found = made.read(one, RandomContext(np.random.default_rng(seed), training))
        assert not isinstance(found, Skipped)
        return found[0]

    assert np.array_equal(read(changed, False), read(plain, True))
    assert np.array_equal(read(changed, True), read(changed, True))
    assert {read(changed, True, seed).shape[1] for seed in range(8)} == {48, 52, 56}
    stretched = task(mask=0.0, augment=[{"kind": "vocal-tract", "by": 0.2}])
    assert read(stretched, True).shape == read(plain, True).shape and not np.allclose(
        read(stretched, True), read(plain, True), atol=0.1
    )


def test_spectrograms_may_be_normalized_by_each_sound() -> None:
    made = task(scaling="sound")
    wave = example("one")["audio"] + np.random.default_rng(0).normal(0, 0.01, RATE // 2).astype(np.float32)
    features = made.features(wave)
    assert np.allclose(features.mean(1), 0, atol=1e-4) and np.allclose(features.std(1), 1, atol=1e-3)
    assert np.allclose(made.features(0.1 * wave), features, atol=1e-2)
    assert np.isfinite(made.features(np.zeros(RATE, np.float32))).all()


def test_loudness_does_not_matter_between_silences_in_a_range_of_decibels() -> None:
    spoken = example("one")["audio"] + np.random.default_rng(0).normal(0, 0.01, RATE // 2).astype(np.float32)
    wave = np.concatenate([np.zeros(RATE // 4, np.float32), spoken, np.zeros(RATE // 4, np.float32)])
    plain, ranged = task(scaling="sound"), task(scaling="sound", top_db=45)
    assert np.abs(plain.features(0.1 * wave) - plain.features(wave)).max() > 0.1
    np.testing.assert_allclose(ranged.features(0.1 * wave), ranged.features(wave), atol=1e-2)
    frames = ranged.spectrogram(wave)
    assert frames.max() - frames.min() == pytest.approx(4.5)
    assert np.array_equal(np.maximum(plain.spectrogram(wave), frames.min()), frames)
    with pytest.raises(ValueError, match="top_db"):
        task(top_db=0)
