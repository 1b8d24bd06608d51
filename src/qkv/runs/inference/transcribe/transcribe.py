"""`run.transcribe`: the transcripts of files, of waveforms, or of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from ....nn.layers.frames import Frames
from ....nn.models.transformer import Transformer
from .. import uses
from ..loaded import LoadedModel
from .codes import Codes
from .listening import Listening
from .reading import Sound, SoundT, read
from .recognized import recognized
from .settings import TranscribeSettings
from .transcript import Transcript
from .whisper import LongForm


@overload
def transcribe(run: LoadedModel, sounds: Sound, **options: Any) -> Transcript: ...
@overload
def transcribe(run: LoadedModel, sounds: list[SoundT], **options: Any) -> list[Transcript]: ...
def transcribe(run: LoadedModel, sounds: Sound | list[SoundT], **options: Any) -> Transcript | list[Transcript]:
    """Return the text of a sound, with its segments: of one file, or a list of them; also of the bytes of a file, or of a
    pair of a waveform and its rate. Options are the fields of `TranscribeSettings`, such as `language="de"`.

    Raises ValueError, naming the sound, for one that can't be read, and for a run that doesn't transcribe.
    """
    several: Sequence[Sound] = sounds if isinstance(sounds, list) else [sounds]
    found = list(transcripts(run, several, TranscribeSettings.of(options)))
    return found if isinstance(sounds, list) else found[0]


def transcripts(run: LoadedModel, sounds: Sequence[Sound], settings: TranscribeSettings) -> Iterator[Transcript]:
    """`transcribe` for several sounds, one after another."""
    if not uses.transcribes(run):
        raise ValueError(
            f"{run.name} is {uses.kind_of(run)}, and transcribing needs {uses.NEEDS['transcribe']}; {uses.advice(run)}"
        )
    if hasattr(run.trained_on, "transcribed"):
        yield from recognized(run, sounds, settings)
        return
    spec = run.model.spec
    assert isinstance(spec, Transformer) and spec.encoder is not None
    assert isinstance(spec.encoder.embedding, Frames)
    if given := [name for name in ("lm", "lm_weight", "word_bonus") if getattr(settings, name) is not None]:
        raise ValueError(f"{run.name} is Whisper, which has no {' and no '.join(given)}; leave it out")
    listening, codes = Listening.of(run.path, spec.encoder.embedding), Codes.of(run)
    codes.prompt(settings.language or next(iter(codes.languages), None), settings.task, settings.timestamps)
    for sound in sounds:
        name, wave = read(sound, listening.rate)
        yield LongForm(run, codes, listening, settings).transcribe(wave, name)
