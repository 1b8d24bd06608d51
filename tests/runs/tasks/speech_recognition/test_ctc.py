"""Speech recognition with CTC: what is read, skipped and told, and the texts of a model's outputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.data.media.audio import encode
from qkv.data.source import Example, Skipped
from qkv.data.task import Item, RandomContext
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Char
from qkv.nn.layers.frames import Frames
from qkv.nn.layers.patches import Patches
from qkv.nn.layers.waveform import Waveform
from qkv.nn.models.heads.ctc import CTC
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.speech_recognition.ctc import RecognizeCTC
from qkv.runs.train.train import train as train_run

RATE = 8000
FRONT = Frames(mels=8, frames=400, strides=(2, 2))
TOKENIZER = train(Char(), ["one two three"])
EVALUATION = RandomContext(np.random.default_rng(0), training=False)
TRAINING = RandomContext(np.random.default_rng(0), training=True)


def example(text: str, seconds: float = 0.5, rate: int = RATE, loud: float = 0.3) -> Example:
    wave = np.clip(loud * np.sin(2 * np.pi * 440 * np.arange(int(seconds * rate)) / rate), -1, 1)
    return {"audio": wave.astype(np.float32), "rate": rate, "text": text, "where": f"a sound of {text}"}


def source(*examples: Example) -> Any:
    return SimpleNamespace(examples=lambda split, shuffle=None: iter(examples))


def task(**settings: Any) -> RecognizeCTC:
    return RecognizeCTC(front=FRONT, rate=RATE, mean=0.0, std=1.0, **settings)


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


def test_sounds_are_padded_and_texts_are_labels() -> None:
    one, two = task().items([example("one", 0.5), example("two one", 0.72, 16000)], TOKENIZER, EVALUATION)
    assert isinstance(one, Item) and isinstance(two, Item)
    assert (one.tokens, two.tokens) == (13, 18)
    batch = task().collate([one, two], 0).batch({})
    assert batch.inputs["ids"].shape == (2, 8, 72) and batch.inputs["layout"].lengths == (13, 18)
    assert not batch.inputs["ids"][0, :, 50:].any()
    assert batch.labels is not None and batch.labels.shape == (2, 7)
    assert batch.counts == {"loss": 10}


def test_texts_longer_than_their_sounds_are_skipped_in_training_and_counted_before() -> None:
    long = example("three three three")
    (skipped,) = task().items([long], TOKENIZER, TRAINING)
    assert skipped == "with a text longer than the sound's tokens" and isinstance(skipped, Skipped)
    assert isinstance(task().items([long], TOKENIZER, EVALUATION)[0], Item)
    (note,) = task().check_inputs(source(long, example("one")), TOKENIZER)
    assert note.startswith(
        "1 of 2 training texts that were looked at are longer than their sounds, and are skipped: one needs"
    )
    assert "20 tokens, and its sound has 13" in note


def test_rates_clipped_sounds_and_unknown_symbols_are_told() -> None:
    notes = task().check_inputs(source(example("öne ö", rate=16000), example("two", loud=9.0)), TOKENIZER)
    assert notes == [
        "of 2 training sounds that were looked at, 1 of 16,000 Hz are resampled to 8,000 Hz",
        "of 2 training sounds that were looked at, 1 is clipped: stretches of samples are at full scale",
        "1 of 2 transcripts hold symbols that the vocabulary lacks, read as unknown: 'ö' 2 ×",
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (example("one", 0.6), "longer than 0.5 seconds"),
        ({"audio": b"no sound", "text": "one"}, "no sound that can be read"),
        ({"audio": b"", "text": "one"}, "empty"),
    ],
)
def test_sounds_that_cannot_be_used_are_skipped(given: Example, reason: str) -> None:
    read = task(longest=0.5).read(given, EVALUATION)
    assert isinstance(read, Skipped) and read.startswith(reason)


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


def test_texts_and_words_of_outputs() -> None:
    path = [0, *(TOKENIZER.encode(c)[0] for c in "oonne  two"), 0]
    logits = torch.nn.functional.one_hot(torch.tensor([path]), TOKENIZER.vocab_size).float()
    model = SimpleNamespace(head=CTC().module(4, TOKENIZER.vocab_size))
    batch = Batch({"layout": Layout.full(len(path))})
    assert task().texts_of(model, logits, batch, TOKENIZER) == ["one two"]


@pytest.mark.slow
def test_the_recipe_learns_to_spell(tmp_path: Path) -> None:
    """Made speech of two words: most letters are right after 150 steps."""
    settings = [
        *(
            "model.d_model=48",
            "model.n_layers=2",
            "model.d_ff=96",
            "model.mels=24",
            "model.dropout=0",
            "data.train=400",
        ),
        *("data.validation=20", "data.test=40", "data.longest=2", "data.shortest=1", "batching.tokens=600"),
        *("training.max_steps=150", "training.eval_every=75", "training.save_every=75", "training.schedule.warmup=20"),
        *("training.optimizer.lr=4e-3", "training.precision=fp32"),
    ]
    trained = train_run(Recipe.load("recognize-ctc", settings), tmp_path / "run", device="cpu")
    assert trained.evaluation.metrics["cer"] < 0.3
    run = qkv.load(tmp_path / "run", device="cpu")
    task, made = run.recipe.task, next(run.recipe.data.examples("test", shuffle=False))
    wave = made["audio"]()
    assert isinstance(task, RecognizeCTC)
    (text,) = task.heard(run, [wave])
    (words,) = task.heard_words(run, [wave])
    assert [word.text for word in words] == text.split()
    assert all(0 <= word.start < word.end <= len(wave) / RATE + 0.05 for word in words)
    audio_file = tmp_path / "a.wav"
    audio_file.write_bytes(encode(wave, RATE))
    (predicted,) = run.predict([str(audio_file)])
    assert predicted.value.split()[0] == text.split()[0]
