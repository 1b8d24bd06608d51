"""Speech recognition with CTC: what is read, skipped and told, and the texts of a model's outputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from spoken_examples import EVALUATION, RATE, TOKENIZER, TRAINING, example, source, task

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.data.media.audio import encode
from qkv.data.source import Example, Skipped
from qkv.data.task import Item
from qkv.nn.models.heads.ctc import CTC
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.speech_recognition.ctc import RecognizeCTC
from qkv.runs.train.train import train as train_run


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
