"""Examples of speech, and a task of recognition that reads them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from qkv.data.source import Example
from qkv.data.task import RandomContext
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Char
from qkv.nn.layers.frames import Frames
from qkv.runs.tasks.speech_recognition.ctc import RecognizeCTC

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
