"""What tasks of speech recognition share: reading sounds, their features, and texts of new sounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ....core.batch import Batch
from ....core.layout import Layout
from ....core.metrics.normalizer import Normalizer
from ....core.spec import brief, counted
from ....data import ascii_art
from ....data.batching.numpy_batch import NumpyBatch
from ....data.media import audio
from ....data.media.audio import Wave, wave_of
from ....data.media.mel_spectrogram import log_mel
from ....data.media.sound_augment import SoundAugmentation, masked_stretch
from ....data.source import Example, Skipped, Source
from ....data.task import Item, RandomContext, Task, format_value
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....data.tokenizers.tokenizer import Tokenizer
from ....nn.layers.embedding import Input
from ....nn.layers.frames import Frames
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import in_parts

_SAMPLE = 200  # training sounds from which mean and deviation are taken, and that are checked
_CHECKED = 5000  # transcripts that are checked before training
_NAMED = 8  # symbols named in a note
_WHISPERS = "<|startoftranscript|>"
_STILL = 1e-3  # the least deviation of a band over a sound
_WAVEFORM_ROWS = 2  # samples, and ones that tell them from padding

Features = NDArray[np.float32]
"""(mels, frames) of a spectrogram, or (2, samples) of a waveform and ones."""


@dataclass(frozen=True)
class TokenLengths:
    """The layout of right-padded sounds by their numbers of tokens."""

    lengths: list[int]

    def layout(self, width: int) -> Layout:
        return Layout.from_lengths(self.lengths)


class SpeechRecognition(Task):
    """Base class of tasks that give the text of a sound.

    A model with the input `frames` reads log-mel spectrograms, normalized by the `mean` and the `std` of the training
    sounds; one with the input `waveform` the samples, each sound with mean 0 and deviation 1. Training changes sounds by
    `augment`, then masks stretches of up to the share `mask` of the bands and of up to 100 ms (SpecAugment, Park et al.
    2019). Sounds of other sample rates are resampled.

    window, hop: seconds in a frame, and from one frame to the next.
    longest:     seconds of a sound at most; longer ones are skipped and counted.
    standardize: whether the samples of a waveform are given mean 0 and deviation 1.
    scaling:     "data" normalizes spectrograms by the training sounds, "sound" each band of a sound by its own mean and
                 deviation (cepstral mean and variance normalization, Viikki & Laurila 1998), so microphones and voices
                 differ less.
    top_db:      the range of a spectrogram in decibels. Values further below the largest one are raised to this limit, so
                 silence and loudness matter less. By default, there is no limit.
    augment:     random changes of training sounds, one after another, see `data.media.sound_augment`.
    normalize:   how texts are normalized before words and characters are compared, as Whisper's authors do: "english",
                 "basic" for any language, or "none".
    spellings:   a JSON file of English words that are replaced in both, such as {"colour": "color"}: the normalizer.json of
                 a Whisper model's directory. By default, spellings stay as they are.
    rate:        samples per second that the model reads; by default as in the training sounds.
    beams:       texts that are kept while decoding; 1 is greedy.
    front:       the model's input layer, which decides what is computed from a sound.
    """

    fields = ("audio", "text")
    pool: ClassVar[int] = 256
    reads: ClassVar[str] = "sound"
    from_data: ClassVar[tuple[str, ...]] = ("mean", "std", "rate")
    decoding: ClassVar[tuple[str, ...]] = ("beams", "normalize", "spellings")

    window: float = Field(default=0.025, gt=0, le=1)
    hop: float = Field(default=0.01, gt=0, le=1)
    mask: float = Field(default=0.2, ge=0, lt=1)
    longest: float = Field(default=30.0, gt=0)
    standardize: bool = True
    scaling: Literal["data", "sound"] = "data"
    top_db: float | None = Field(default=None, gt=0)
    augment: tuple[SoundAugmentation, ...] = ()
    normalize: Normalizer = "none"
    spellings: str | None = None
    beams: int = Field(default=1, ge=1)
    front: Input | None = None
    mean: float | None = None
    std: float | None = None
    rate: int | None = None

    @model_validator(mode="after")
    def _spellings_are_english(self) -> Self:
        if self.spellings is not None and self.normalize != "english":
            raise ValueError(
                f"spellings are replaced by normalize=english, and normalize is {self.normalize}; set both"
            )
        return self

    # -- what depends on the data ---------------------------------------------------------------------------------

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("jiwer",)

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        if not self.reads_input(inputs):
            raise ValueError(
                f"the task {self.kind} reads sound, and this model reads {inputs.kind}; give it the input frames or waveform"
            )
        if isinstance(tokenizer, Tokenizer) and tokenizer.raw.token_to_id(_WHISPERS) is not None:
            raise ValueError(
                f"the tokenizer has Whisper's {_WHISPERS}, and Whisper reads other spectrograms and prompts than the task "
                f"{self.kind} makes; it can be used (qkv transcribe), not fine-tuned: train from model.preset=NAME"
            )
        task = self.replace({"front": inputs})
        if task.rate is not None and (task.mean is not None or not isinstance(inputs, Frames)):
            return task
        sounds = list(islice(_sounds(source), _SAMPLE))
        if not sounds:
            raise ValueError("the training data have no sound that can be read")
        task = task.replace({"rate": task.rate or _usual_rate(sounds)})
        if isinstance(inputs, Frames) and task.mean is None:
            frames = np.concatenate([task.spectrogram(audio.resampled(*one, task.sampled_at)) for one in sounds], 1)
            task = task.replace({"mean": float(frames.mean()), "std": float(frames.std()) or 1.0})
        return task

    @staticmethod
    def reads_input(inputs: Input) -> bool:
        """Whether a model's input is sound."""
        return inputs.kind in ("frames", "waveform")

    @property
    def sampled_at(self) -> int:
        """Samples per second. Raises ValueError before `resolve`."""
        if self.rate is None:
            raise ValueError(f"the task {self.kind} needs its rate, the samples per second that the model reads")
        return self.rate

    def check_inputs(self, source: Source, tokenizer: Encoder | None) -> list[str]:
        notes = [*self._of_sounds(source)]
        if tokenizer is not None:
            texts = [one["text"] for one in islice(source.examples("train", shuffle=False), _CHECKED)]
            notes += unknown_symbols(tokenizer, texts)
        return notes

    def _of_sounds(self, source: Source) -> Iterator[str]:
        """Notes on rates and clipped sounds among the first training sounds."""
        sounds = list(islice(_sounds(source), _SAMPLE))
        others = Counter(rate for _, rate in sounds if rate != self.sampled_at)
        among = f"of {counted(len(sounds), 'training sound')} that were looked at"
        if others:
            rates = ", ".join(f"{n:,} of {rate:,} Hz" for rate, n in others.most_common())
            yield f"{among}, {rates} are resampled to {self.sampled_at:,} Hz"
        if clipped := sum(audio.clipped(samples) > audio.CLIPPED for samples, _ in sounds):
            yield f"{among}, {clipped:,} {'is' if clipped == 1 else 'are'} clipped: stretches of samples are at full scale"

    # -- from sounds to batches -----------------------------------------------------------------------------------

    def spectrogram(self, samples: Wave, warp: float = 1.0) -> Features:
        """Compute the log-mel spectrogram (mels, frames), as log10. A sound shorter than a frame is padded with silence."""
        assert isinstance(self.front, Frames)
        n_fft, hop = round(self.window * self.sampled_at), round(self.hop * self.sampled_at)
        padded = np.pad(samples, (0, max(n_fft - len(samples), 0)))
        sounds = torch.from_numpy(padded)[None]
        mels = log_mel(sounds, self.sampled_at, n_mels=self.front.mels, n_fft=n_fft, hop=hop, warp=warp)[0]
        return (mels if self.top_db is None else mels.clamp_(min=mels.max() - self.top_db / 10)).numpy()

    def features(self, samples: Wave, warp: float = 1.0) -> Features:
        """What the model reads of a waveform at the rate `rate`; `warp` is as in `mel_filters`."""
        if isinstance(self.front, Frames):
            frames = self.spectrogram(samples, warp)
            if self.scaling == "sound":
                return (frames - frames.mean(1, keepdims=True)) / np.maximum(frames.std(1, keepdims=True), _STILL)
            assert self.mean is not None and self.std is not None
            return (frames - np.float32(self.mean)) / np.float32(self.std)
        if not self.standardize:
            return np.stack([samples, np.ones_like(samples)])
        exact = samples.astype(np.float64)
        scaled = ((exact - exact.mean()) / np.sqrt(exact.var() + 1e-7)).astype(np.float32)
        return np.stack([scaled, np.ones_like(scaled)])

    def read(self, example: Example, randomness: RandomContext) -> tuple[Features, int] | Skipped:
        """The features of an example's sound and its number of tokens; or why it is skipped."""
        sound = wave_of(example, self.sampled_at)
        if isinstance(sound, Skipped):
            return Skipped(sound, example.get("where", ""))
        samples = sound[0]
        if len(samples) > self.longest * self.sampled_at:
            return Skipped(f"longer than {self.longest:g} seconds", example.get("where", ""))
        assert self.front is not None
        features = self.features(*self._augmented(samples, randomness))
        if isinstance(self.front, Frames) and features.shape[1] > self.front.frames:
            return Skipped(
                f"longer than the {self.front.frames:,} frames that the model reads", example.get("where", "")
            )
        tokens = self.front.tokens_of(features.shape[1])
        if tokens < 1:
            return Skipped("too short for a single token", example.get("where", ""))
        return self._filled(self._masked(features, randomness), tokens), tokens

    def _filled(self, features: Features, tokens: int) -> Features:
        """Fill up the last token of a spectrogram, so a sound gives the same in every batch."""
        if not isinstance(self.front, Frames):
            return features
        frames = min(tokens * math.prod(self.front.strides), self.front.frames)
        return np.pad(features, ((0, 0), (0, frames - features.shape[1])))

    def _augmented(self, samples: Wave, randomness: RandomContext) -> tuple[Wave, float]:
        """A sound after the changes of training, and the factor by which its frequencies are warped."""
        warp = 1.0
        for change in self.augment if randomness.training else ():
            samples, warp = change(samples, randomness.generator), warp * change.warp(randomness.generator)
        return samples, round(warp, 2)  # one of few filter banks

    def _masked(self, features: Features, randomness: RandomContext) -> Features:
        """Mask stretches in training: two of the bands, and of the frames one for each half second."""
        if not (randomness.training and self.mask and isinstance(self.front, Frames)):
            return features
        masked, random = features.copy(), randomness.generator
        bands, frames = features.shape
        wide = max(int(0.1 / self.hop), 1)
        for axis, size, most, times in ((0, bands, int(bands * self.mask), 2), (1, frames, wide, frames // (5 * wide))):
            for _ in range(times):
                masked[masked_stretch(axis, size, most, random)] = 0
        return masked

    def inputs(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item | Skipped:
        sound = self.read(example, randomness)
        if isinstance(sound, Skipped):
            return sound
        about: Example = {name: example[name] for name in ("text", "where") if name in example}
        return Item({"ids": sound[0]}, tokens=sound[1], example=about)

    def collate(self, items: Sequence[Item], pad: int) -> NumpyBatch:
        """Pad sounds on the right with zeros, and texts as usual."""
        lengths = [item.tokens or 0 for item in items]
        longest = max(item.arrays["ids"].shape[1] for item in items)
        widened = [
            Item(
                {**one.arrays, "ids": np.pad(one.arrays["ids"], ((0, 0), (0, longest - one.arrays["ids"].shape[1])))},
                one.labels,
                one.targets,
                one.tokens,
                one.example,
            )
            for one in items
        ]
        batch = super().collate(widened, pad)
        return NumpyBatch(**{**vars(batch), "placed": {**batch.placed, "ids": TokenLengths(lengths)}})

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """Return the spectrogram, high pitches above low ones, or the waveform, then the labels and the text."""
        features = batch.inputs["ids"][row]
        lines = [("sound", format_value(features, None, ""))]
        if features.shape[0] == _WAVEFORM_ROWS:
            lines.append(("", ascii_art.series(features[0])))
        else:
            lines += [("", line) for line in ascii_art.picture(features[None].flip(1))]
        shown = replace(
            batch, inputs={name: value for name, value in batch.inputs.items() if name not in ("ids", "layout")}
        )
        lines += super().preview(shown, row, tokenizer)
        return [*lines, ("text", batch.texts[row].get("text", ""))] if batch.texts else lines

    # -- texts of new sounds --------------------------------------------------------------------------------------

    def transcribed(self, trained: TrainedModel, examples: Sequence[Example]) -> list[str]:
        """Return the text of each sound. Raises ValueError, naming the sound by its "where", if one can't be read."""
        raise NotImplementedError(f"{type(self).__name__} does not define texts of sounds")

    def heard(self, trained: TrainedModel, waves: Sequence[Wave]) -> list[str]:
        """Return the text of each waveform at the rate `rate`."""
        return self.transcribed(trained, self.examples_of(waves))

    def examples_of(self, waves: Sequence[Wave]) -> list[Example]:
        """Waveforms at the rate `rate` as examples."""
        return [
            {"audio": wave, "rate": self.sampled_at, "where": f"sound {number}"} for number, wave in enumerate(waves, 1)
        ]


def predict(task: SpeechRecognition, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """Predict the text of each sound file. Raises ValueError if one holds no sound."""
    for part in in_parts(paths):
        sounds = [(path, *audio.read(path)) for path in part]
        examples = [{"audio": samples, "rate": rate, "where": path} for path, samples, rate in sounds]
        for path, text in zip(part, task.transcribed(trained, examples), strict=True):
            yield Prediction(path, text, f"{path}: {text}", {"text": text})


def unknown_symbols(tokenizer: Encoder, texts: Sequence[str]) -> list[str]:
    """A note on the symbols that a vocabulary lacks: which, and how often."""
    unknown = getattr(tokenizer, "unk_id", None)
    if unknown is None:
        return []
    symbols = Counter[str]()
    for text in texts:
        symbols.update(text)
    listed = sorted(symbols)
    rows = tokenizer.encode_batch(listed)
    lacking = {symbol: symbols[symbol] for symbol, ids in zip(listed, rows, strict=True) if unknown in ids}
    if not lacking:
        return []
    worst = sorted(lacking, key=lambda symbol: -lacking[symbol])
    named = ", ".join(f"{brief(symbol)} {lacking[symbol]:,} ×" for symbol in worst[:_NAMED])
    more = f" and {len(worst) - _NAMED:,} more" if len(worst) > _NAMED else ""
    touched = sum(any(symbol in lacking for symbol in text) for text in texts)
    return [
        f"{touched:,} of {counted(len(texts), 'transcript')} hold symbols that the vocabulary lacks, read as unknown: "
        f"{named}{more}"
    ]


def _sounds(source: Source) -> Iterator[tuple[Wave, int]]:
    """The training sounds that can be read, at their own rates."""
    for example in source.examples("train", shuffle=True):
        sound = wave_of(example)
        if not isinstance(sound, Skipped):
            yield sound


def _usual_rate(sounds: Sequence[tuple[Wave, int]]) -> int:
    return Counter(rate for _, rate in sounds).most_common(1)[0][0]
