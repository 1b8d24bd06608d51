"""The task `video-classify`: video classification from tubelets of space and time (ViViT)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from pydantic import Field

from ....core.batch import Batch
from ....data import ascii_art
from ....data.media.images import Pixels, Size
from ....data.media.video import Frames, evenly, read, resized, tubelets
from ....data.source import Example, Skipped, Source
from ....data.task import Task
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ....nn.layers.patches import Patches
from ..image_classification.task import ImageClassify


class VideoClassify(ImageClassify, kind="video-classify"):
    """Examples with a "video", frames (T, C, H, W), and a "label". The head is an `image-classifier`.

    The model reads a video as one picture (`video.tubelets`): `tubelet` frames of C channels become tubelet · C channels,
    and the frames / tubelet groups are stacked below one another. For 8 frames of 16 × 16 pixels with two frames per
    tubelet, `model.image` is [64, 16].

    frames:  the number of frames, evenly from all of a video; by default that of the first training video.
    tubelet: the number of frames per patch; by default what the model's channels hold.
    """

    reads: ClassVar[str] = "video"

    frames: int = Field(default=0, ge=0)
    tubelet: int = Field(default=0, ge=0)

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        if self.augment:
            raise ValueError("task.augment changes single pictures and would tear a video's frames apart; leave it out")
        first = next(source.examples("train", shuffle=False), {})
        shape = np.shape(first.get("video", ()))
        if len(shape) != 4:
            raise ValueError(
                f"the task {self.kind!r} is on videos, and {source.kind!r} gives none; take a source of videos"
            )
        channels = inputs.channels if isinstance(inputs, Patches) else 0
        frames, depth = self.frames or shape[0], self.tubelet or max(1, channels // shape[1])
        if frames % depth or depth * shape[1] != channels:
            raise ValueError(
                f"videos of {frames} frames of {shape[1]} channel(s) make no tubelets of {depth} frames for a model of "
                f"{channels} channels; give model.channels as {shape[1]} for each frame of a tubelet (such as "
                f"{2 * shape[1]}), and as task.frames a number of whole tubelets"
            )
        task = self.replace({"frames": frames, "tubelet": depth})
        height = (task.image or (inputs.image if isinstance(inputs, Patches) else (0, 0)))[0]
        if height % (frames // depth):
            raise ValueError(
                f"model.image is {height} high, which the {frames // depth} tubelets in time do not divide"
            )
        return super(VideoClassify, task).resolve(source, tokenizer, inputs)

    def pixels(self, example: Example) -> Pixels | Skipped:
        video = example.get("video")
        if video is None:
            raise ValueError(f"{example.get('where', 'an example')} has no video, which the task {self.kind!r} is on")
        channels = self.channels // self.tubelet
        if video.shape[1] != channels:
            return Skipped(f"of {video.shape[1]} channels where the model reads {channels}")
        return tubelets(resized(evenly(video, self.frames), self._frame, self.fit), self.tubelet)

    def read(self, path: str | Path) -> Frames:
        """Read the frames of a file with the model's channels. Raises ValueError, naming the file, if it holds no video."""
        return read(path, "gray" if self.channels == self.tubelet else "rgb", bits=self.bits or 16)

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """Return the first frame of every tubelet, from left to right, and the class."""
        seen = batch.inputs["ids"][row]
        moments = seen[: len(seen) // self.tubelet].unflatten(1, (-1, self._frame[0]))  # (C, T, H, W)
        lines = [line for line in super().preview(batch, row, tokenizer) if line[0]]
        return [lines[0], *(("", line) for line in ascii_art.picture(moments.movedim(1, 2).flatten(2))), *lines[1:]]

    def notes(self, example: Example) -> tuple[str, ...]:
        count, _, *have = example["video"].shape
        if count == self.frames and tuple(have) == self._frame:
            return Task.notes(self, example)
        wanted = f"{self.frames} frames of {self._frame[0]} × {self._frame[1]} pixels"
        note = f"the first video has {count} frames of {have[0]} × {have[1]} pixels, and the model reads {wanted}"
        return (*Task.notes(self, example), f"{note}; see task.frames and model.image")

    @property
    def _frame(self) -> Size:
        """Height and width of a frame in the model's input."""
        return self.size[0] * self.tubelet // self.frames, self.size[1]
