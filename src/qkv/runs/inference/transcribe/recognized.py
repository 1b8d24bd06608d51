"""Runs of speech recognition that qkv trained: their task writes what is said in pieces that the model has room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....data.media.audio import Wave
from ....data.source import Example
from ....nn.layers.frames import Frames
from ....nn.models.transformer import Transformer
from ...tasks.speech_recognition.task import SpeechRecognition
from ..loaded import LoadedModel
from .reading import Sound, read
from .settings import TranscribeSettings
from .transcript import SpokenSegment, TimedWord, Transcript

# options that only Whisper has
_WHISPERS = (
    "language",
    "task",
    "timestamps",
    "condition",
    "temperatures",
    "thresholds",
    "seed",
)
_FRAME = 0.02  # seconds, whose loudness is compared
_LATEST = 0.75  # of a piece, where the search for a quiet place begins


def recognized(run: LoadedModel, sounds: Sequence[Sound], settings: TranscribeSettings) -> Iterator[Transcript]:
    """Transcribe sounds with a run's own task. Raises ValueError for options that only Whisper has."""
    task = run.trained_on
    assert isinstance(task, SpeechRecognition)
    if given := [name for name in _WHISPERS if getattr(settings, name) != getattr(TranscribeSettings(), name)]:
        raise ValueError(
            f"{run.name}, of the task {task.kind!r}, has no use for {' and '.join(given)}, which Whisper has; leave "
            f"{'it' if len(given) == 1 else 'them'} out"
        )
    timed = getattr(task, "heard_words", None)
    if settings.words and timed is None:
        raise ValueError(
            f"{run.name}, of the task {task.kind!r}, gives no times of words; Whisper does, and runs of recognize-ctc do"
        )
    task = task.replace(_decoding(task, settings))
    rate = task.sampled_at
    for sound in sounds:
        name, wave = read(sound, rate)
        parts = pieces_of(wave, rate, _longest(run, task))
        examples: list[Example] = [{"audio": wave[b:e], "rate": rate, "where": name, "text": ""} for b, e in parts]
        texts = task.transcribed(run, examples)
        words = (
            timed(run, [example["audio"] for example in examples])
            if settings.words and timed is not None
            else [[] for _ in parts]
        )
        segments = []
        for (begin, end), text, spoken in zip(parts, texts, words, strict=True):
            start = begin / rate
            inside = tuple(TimedWord(f" {word.text}", start + word.start, start + word.end) for word in spoken)
            segments.append(SpokenSegment(start, end / rate, text, words=inside))
        kept = tuple(segment for segment in segments if segment.text.strip())
        yield Transcript(" ".join(segment.text for segment in kept), kept, len(wave) / rate, name)


def _decoding(task: SpeechRecognition, settings: TranscribeSettings) -> dict[str, Any]:
    """The fields of the task that the settings change. Raises ValueError for one that it has not."""
    given = {
        "beams": settings.num_beams,
        "lm": settings.lm,
        "lm_weight": settings.lm_weight,
        "word_bonus": settings.word_bonus,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if unknown := [name for name in chosen if name not in task.decoding]:
        raise ValueError(
            f"the task {task.kind!r} has no {' and no '.join(unknown)}: language models help runs of recognize-ctc"
        )
    weighed = [name for name in ("lm_weight", "word_bonus") if name in chosen]
    if weighed and not (settings.lm or getattr(task, "lm", None)):
        raise ValueError(
            f"{' and '.join(weighed)} {'weighs' if len(weighed) == 1 else 'weigh'} a language model, and there is none; add "
            "lm (on the command line --lm), an ARPA file or a model's directory"
        )
    return chosen


def _longest(run: LoadedModel, task: SpeechRecognition) -> int:
    """The most samples that a run's model reads at once."""
    seconds = task.longest
    spec = run.model.spec
    embedding = spec.encoder.embedding if isinstance(spec, Transformer) and spec.encoder is not None else None
    if isinstance(embedding, Frames):
        seconds = min(seconds, embedding.frames * task.hop)
    return int(seconds * task.sampled_at)


def pieces_of(wave: Wave, rate: int, longest: int) -> list[tuple[int, int]]:
    """Where to cut a waveform into pieces of at most `longest` samples: where the last quarter of each is quietest."""
    parts, begin = [], 0
    while len(wave) - begin > longest:
        size = max(int(rate * _FRAME), 1)
        first = begin + int(longest * _LATEST)
        search = wave[first : begin + longest]
        count = len(search) // size
        power = np.square(search[: count * size]).reshape(count, size).sum(1) if count else np.zeros(1)
        cut = min(first + int(power.argmin()) * size + size // 2, begin + longest)
        parts.append((begin, cut))
        begin = cut
    return [*parts, (begin, len(wave))]
