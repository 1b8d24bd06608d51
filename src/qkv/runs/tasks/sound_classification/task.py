"""The task `sound`: sound classification from a log-mel spectrogram (AST), and its prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from ....core.batch import Batch
from ....core.metrics.base import Metric
from ....data import ascii_art
from ....data.classes import class_index, classes_of_source
from ....data.media import audio
from ....data.media.audio import Wave, resampled
from ....data.media.mel_spectrogram import log_mel
from ....data.media.sound_augment import masked_stretch
from ....data.source import Example, OnError, Skipped, Source
from ....data.task import Item, Labels, RandomContext, Task
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ....nn.layers.patches import Patches
from ..classes import class_predictions
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import in_parts
from .metric import SoundClassMetric

_STATISTICS_SAMPLE = 200  # training sounds from which mean and deviation are taken
_AT_ONCE = 64  # sounds whose spectrograms are computed in one call


class Sound(Task, kind="sound"):
    """The class of a sound, from patches of its log-mel spectrogram (AST, Gong et al. 2021).

    The model reads an image of `n_mels` × frames; a longer sound is cut, a shorter one padded with silence, in training at
    a random position. Training also masks stretches of up to the share `mask` of the time and of the mel bands
    (SpecAugment, Park et al. 2019).

    n_fft, hop: samples in a frame, and from one frame to the next.
    mean, std:  of all spectrograms, for normalization; by default measured on some training sounds.
    rate:       samples per second that the model reads; by default as in the training sounds.
    on_error:   for an example with a class that is not in the training data: "raise" an error, or "skip" and count it.
    """

    fields = ("audio", "rate", "label")
    pool: ClassVar[int] = 512
    reads: ClassVar[str] = "sound"
    needs_tokenizer: ClassVar[bool] = False
    tells_classes: ClassVar[bool] = True
    outputs: ClassVar[str] = "classes"
    from_data: ClassVar[tuple[str, ...]] = ("mean", "std", "rate")

    n_fft: int = Field(default=256, ge=16)
    hop: int = Field(default=80, ge=1)
    mask: float = Field(default=0.2, ge=0, lt=1)
    on_error: OnError = "raise"
    classes: tuple[str, ...] = ()
    image: tuple[int, int] = (0, 0)
    tokens: int = 0
    mean: float | None = None
    std: float | None = None
    rate: int | None = None

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        if not isinstance(inputs, Patches) or inputs.channels != 1:
            raise ValueError(
                "sounds are read as images of one channel, mel bands × frames; give the model patches of such"
            )
        task = self.replace({"image": inputs.image, "tokens": inputs.grid.tokens})
        if not task.classes:
            task = task.replace({"classes": classes_of_source(source)})
        if task.mean is None or task.std is None or task.rate is None:
            examples = list(islice(source.examples("train", shuffle=True), _STATISTICS_SAMPLE))
            mels = np.stack([task.spectrogram(example["audio"], example["rate"]) for example in examples])
            values = {"mean": float(mels.mean()), "std": float(mels.std()), "rate": examples[0]["rate"]}
            task = task.replace({name: value for name, value in values.items() if getattr(task, name) is None})
        return task

    @property
    def n_labels(self) -> int | None:
        return len(self.classes) or None

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        items: list[Sequence[Item] | Skipped] = []
        for start in range(0, len(examples), _AT_ONCE):
            part = examples[start : start + _AT_ONCE]
            rate = self.rate or examples[0]["rate"]
            drawn = [(self._samples(example, rate, randomness), self._masked(randomness)) for example in part]
            pictures = self._pictures(np.stack([samples for samples, _ in drawn]), rate)
            items += (
                [self._item(example, picture, masked)]
                for example, picture, (_, masked) in zip(part, pictures, drawn, strict=True)
            )
        return items

    def _item(self, example: Example, picture: NDArray[np.float32], masked: Sequence[tuple[slice, ...]]) -> Item:
        for stretch in masked:
            picture[stretch] = 0
        about: Example = {name: example[name] for name in ("label", "where") if name in example}
        return Item({"ids": picture[None]}, tokens=self.tokens, example={**about, "mels": picture})

    def labels(self, example: Example, inputs: Item) -> Labels | Skipped:
        number = class_index(example, self.classes, self.on_error)
        return number if isinstance(number, Skipped) else np.int64(number)

    def _samples(self, example: Example, rate: int, randomness: RandomContext) -> Wave:
        """Resample a sound to `rate`, and crop or pad it to the length of the model's image."""
        samples = resampled(example["audio"], example["rate"], rate)
        return _fitted(samples, self.image[1] * self.hop, randomness)

    def _pictures(self, samples: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
        """Compute the normalized spectrograms (B, mels, frames) of sounds (B, samples)."""
        assert self.mean is not None and self.std is not None
        return (self._spectrograms(samples, rate) - np.float32(self.mean)) / np.float32(self.std)

    def _spectrograms(self, samples: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
        sounds = torch.from_numpy(samples)
        return log_mel(sounds, rate, n_mels=self.image[0], n_fft=self.n_fft, hop=self.hop).numpy()

    def spectrogram(self, samples: Wave, rate: int) -> NDArray[np.float32]:
        """Compute the log-mel spectrogram (mels, frames), as log10. Only the middle of a longer sound is used."""
        return self._spectrograms(_fitted(samples, self.image[1] * self.hop, None)[None], rate)[0]

    def _masked(self, randomness: RandomContext) -> Sequence[tuple[slice, ...]]:
        """Draw the mel bands and the frames that are masked in training, as indices into a spectrogram."""
        if not (randomness.training and self.mask):
            return ()
        random = randomness.generator
        return [masked_stretch(axis, size, int(size * self.mask), random) for axis, size in enumerate(self.image)]

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """Return the spectrogram, high pitches above low ones, and the class."""
        lines = [line for line in super().preview(batch, row, tokenizer) if line[0]]
        drawn = ascii_art.picture(batch.inputs["ids"][row].flip(1))
        return [lines[0], *(("", line) for line in drawn), *lines[1:]]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return SoundClassMetric(self.classes)


@Sound.predicts
def predict(task: Sound, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """Predict a `Classified` for each file. Raises ValueError if one holds no sound."""
    for part in in_parts(paths):
        sounds = ((path, *audio.read(path)) for path in part)
        examples = [{"audio": samples, "rate": rate, "where": path} for path, samples, rate in sounds]
        yield from class_predictions(task, task.classes, trained, part, examples)


def _fitted(samples: Wave, length: int, randomness: RandomContext | None) -> Wave:
    """Pad a shorter sound with silence and crop a longer one, at a random position in training."""
    room = abs(length - len(samples))
    start = (
        int(randomness.generator.integers(0, room + 1)) if randomness is not None and randomness.training else room // 2
    )
    if len(samples) >= length:
        return samples[start : start + length]
    padded = np.zeros(length, np.float32)
    padded[start : start + len(samples)] = samples
    return padded
