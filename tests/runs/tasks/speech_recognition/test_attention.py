"""Speech recognition by attention: what the decoder reads and learns, and the texts that it writes."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from small_recipes import prepared

import qkv
from qkv.core.batch import IGNORE
from qkv.data.media.audio import encode
from qkv.data.source import Example, Skipped
from qkv.data.task import Item, RandomContext
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Char
from qkv.nn.layers.frames import Frames
from qkv.runs.inference.run import Run
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.speech_recognition.attention import Recognize
from qkv.runs.train.train import train as train_run

RATE = 8000
TOKENIZER = train(Char(), ["one two three"])
TASK = Recognize(front=Frames(mels=8, frames=400, strides=(2, 2)), rate=RATE, mean=0.0, std=1.0, max_length=12)


def example(text: str, seconds: float = 0.5) -> Example:
    wave = np.sin(2 * np.pi * 440 * np.arange(int(seconds * RATE)) / RATE).astype(np.float32)
    return {"audio": wave, "rate": RATE, "text": text, "where": f"a sound of {text}"}


def context(training: bool) -> RandomContext:
    return RandomContext(np.random.default_rng(0), training)


def test_the_decoder_reads_the_start_and_learns_the_end() -> None:
    one, two = TASK.items([example("one"), example("two one", 0.72)], TOKENIZER, context(False))
    assert isinstance(one, Item) and isinstance(two, Item)
    text = TOKENIZER.encode("one")
    assert one.arrays["target"].tolist() == [TOKENIZER.bos_id, *text]
    assert np.asarray(one.labels).tolist() == [*text, TOKENIZER.eos_id]
    assert one.lengths == (4, 13)
    batch = TASK.collate([one, two], 0).batch({})
    assert batch.inputs["ids"].shape == (2, 8, 72) and batch.inputs["layout"].lengths == (13, 18)
    assert batch.inputs["target"].shape == (2, 8) and batch.inputs["target_layout"].lengths == (4, 8)
    assert batch.labels is not None and batch.labels[0].tolist()[4:] == [IGNORE] * 4
    assert batch.counts == {"loss": 12}


def test_empty_and_long_texts_are_skipped_in_training() -> None:
    given = [example(""), example("three three three")]
    for one, reason in zip(TASK.items(given, TOKENIZER, context(True)), ("empty", "more than 12 tokens"), strict=True):
        assert isinstance(one, Skipped) and reason in one
    assert all(isinstance(one, Item) for one in TASK.items(given, TOKENIZER, context(False)))


def test_an_encoder_alone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs an encoder of sound and a decoder.*recognize-ctc"):
        Recognize().of_model(qkv.preset("speech-encoder"))


def test_texts_do_not_depend_on_the_other_sounds_of_a_batch() -> None:
    small = prepared("recognize")
    run, task = Run(copy.deepcopy(small.model), small.tokenizer, recipe=small.recipe), small.recipe.task
    torch.manual_seed(2)
    for parameter in run.model.parameters():  # so that it writes something
        parameter.data += 0.5 * torch.randn_like(parameter)
    assert isinstance(task, Recognize)
    waves = [np.random.default_rng(i).normal(0, 0.1, 3000 * i).astype(np.float32) for i in (1, 3, 2)]
    together = task.heard(run, waves)
    assert together == [task.heard(run, [wave])[0] for wave in waves] and any(together)
    task = task.replace(beams=3)
    assert task.heard(run, waves) == [task.heard(run, [wave])[0] for wave in waves]


def test_transcripts_by_files_and_beams(tmp_path: Path) -> None:
    small = prepared("recognize")
    run = Run(small.model, small.tokenizer, recipe=small.recipe)
    (tmp_path / "a.wav").write_bytes(encode(0.1 * np.random.default_rng(0).normal(size=9000).astype(np.float32), 16000))
    heard = run.transcribe(str(tmp_path / "a.wav"), num_beams=2)
    assert heard.duration == pytest.approx(9000 / 16000) and heard.language is None
    for options, message in (
        ({"words": True}, "gives no times of words"),
        ({"lm": "words.arpa"}, "the task 'recognize' has no lm: language models help runs of recognize-ctc"),
        ({"language": "en"}, "has no use for language, which Whisper has"),
    ):
        with pytest.raises(ValueError, match=message):
            run.transcribe(str(tmp_path / "a.wav"), **options)


@pytest.mark.slow
def test_the_recipe_learns_to_write(tmp_path: Path) -> None:
    """Made speech of one word: most words are right after 200 steps."""
    settings = [
        *("model.d_model=64", "model.n_layers=2", "model.d_ff=128", "model.mels=24", "model.dropout=0"),
        *("data.train=600", "data.validation=20", "data.test=40", "data.longest=1", "data.shortest=1"),
        *("training.max_steps=200", "training.max_epochs=null", "training.eval_every=100", "training.save_every=100"),
        *("training.schedule.warmup=20", "training.optimizer.lr=4e-3", "training.precision=fp32"),
        *("batching.tokens=900", "task.mask=0"),
    ]
    trained = train_run(Recipe.load("recognize", settings), tmp_path / "run", device="cpu")
    assert trained.evaluation.metrics["wer"] < 0.3
    run = qkv.load(tmp_path / "run", device="cpu")
    made = next(run.recipe.data.examples("test", shuffle=False))
    heard = run.transcribe((made["audio"](), RATE))
    assert isinstance(heard.text, str) and heard.segments[0].end == pytest.approx(heard.duration)
