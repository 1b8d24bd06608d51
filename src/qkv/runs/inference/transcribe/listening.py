"""How a model of the Hub reads sounds: the log-mel frames that its `preprocessor_config.json` describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ....core.spec import brief
from ....data.media.audio import Wave
from ....data.media.mel_spectrogram import compressed, log_mel
from ....io.directories.layout import read_json
from ....io.directories.preprocessor import FILE
from ....nn.layers.frames import Frames

PROCESSOR = "processor_config.json"  # of newer files, the same beside the tokenizer's settings
KIND = "WhisperFeatureExtractor"


@dataclass(frozen=True)
class Listening:
    """Log-mel frames as Whisper reads them: one of `n_fft` samples every `hop`, at `rate` samples per second.

    window: the most frames that a model reads at once; stride: frames in a token.
    """

    mels: int = 80
    rate: int = 16_000
    n_fft: int = 400
    hop: int = 160
    window: int = 3000
    stride: int = 2

    @classmethod
    def of(cls, folder: Path | None, frames: Frames) -> Listening:
        """The frames that a model reads by the file in its directory, or Whisper's if it has none.

        Raises ValueError for a file of another kind, or of other sizes than the model's.
        """
        stride = frames.tokens and -(-frames.frames // frames.tokens)
        said, path = _said(folder)
        kind = said.get("feature_extractor_type", KIND)
        if kind != KIND:
            raise ValueError(f"{path}: the feature extractor {brief(kind)} is not built here; what is, is {KIND}")
        if said.get("do_normalize") or said.get("dither"):
            raise ValueError(f"{path}: do_normalize and dither are not built here; set them to false and 0")
        sizes = {"feature_size": 80, "sampling_rate": 16_000, "n_fft": 400, "hop_length": 160}
        read = {key: said.get(key, usual) for key, usual in sizes.items()}
        for key, value in read.items():
            if type(value) is not int or not 1 <= value <= 1 << 20:
                raise ValueError(f"{path}: {key} is a whole number of at least 1, not {brief(value)}")
        mels, rate, n_fft, hop = read.values()
        if "feature_size" not in said:
            mels = frames.mels
        if mels != frames.mels:
            raise ValueError(f"{path}: feature_size is {mels}, and the model reads {frames.mels} mel bands")
        return cls(mels, rate, n_fft, hop, frames.frames, stride)

    @property
    def samples(self) -> int:
        """The most samples that a model reads at once."""
        return self.window * self.hop

    @property
    def step(self) -> float:
        """The seconds of a token."""
        return self.stride * self.hop / self.rate

    def features(self, wave: Wave) -> Float[Tensor, "1 mels frames"]:
        """The frames of a waveform; one that is shorter than a window is followed by silence."""
        if len(wave) < self.samples:
            wave = np.pad(wave, (0, self.samples - len(wave)))
        samples = torch.from_numpy(np.ascontiguousarray(wave, np.float32))[None]
        return compressed(log_mel(samples, self.rate, n_mels=self.mels, n_fft=self.n_fft, hop=self.hop, scale="slaney"))

    def to_json(self) -> dict[str, Any]:
        """Return the content of a `preprocessor_config.json`."""
        return {
            "feature_extractor_type": KIND,
            "processor_class": "WhisperProcessor",
            "feature_size": self.mels,
            "sampling_rate": self.rate,
            "n_fft": self.n_fft,
            "hop_length": self.hop,
            "chunk_length": self.samples / self.rate if self.samples % self.rate else self.samples // self.rate,
            "n_samples": self.samples,
            "nb_max_frames": self.window,
            "padding_side": "right",
            "padding_value": 0.0,
            "return_attention_mask": False,
        }


def _said(folder: Path | None) -> tuple[Mapping[str, Any], Path]:
    """What the files of a directory say, and which of them; nothing if there are none."""
    if folder is None:
        return {}, Path(FILE)
    for name in (FILE, PROCESSOR):
        path = folder / name
        if path.is_file():
            said = read_json(path)
            if isinstance(said, Mapping) and name == PROCESSOR:
                said = said.get("feature_extractor", {})
            if not isinstance(said, Mapping):
                raise ValueError(f"{path} is not a JSON object of settings")
            return {key: value for key, value in said.items() if value is not None}, path
    return {}, folder / FILE
