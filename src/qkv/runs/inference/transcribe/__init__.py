"""Transcribe sounds: speech to text with the times of segments and words, by Whisper and by runs of speech recognition."""

from .reading import Sound, SoundT
from .settings import TranscribeSettings
from .transcribe import transcribe
from .transcript import SpokenSegment, TimedWord, Transcript
from .window import TEMPERATURES, Thresholds

__all__ = [
    "TEMPERATURES",
    "Sound",
    "SoundT",
    "SpokenSegment",
    "Thresholds",
    "TimedWord",
    "TranscribeSettings",
    "Transcript",
    "transcribe",
]
