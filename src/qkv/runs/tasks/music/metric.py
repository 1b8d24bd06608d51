"""Negative log-likelihood of frames of music, and continuations as samples."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import MeasuredModel, Metric, MetricValue
from ....core.metrics.display import register
from ....data.media.midi import to_midi
from ....data.media.note_names import END, Frame, frames_to_text, is_music, runs, text_to_frames
from ....data.tokenizers.protocol import Encoder
from ....data.tokenizers.tokenizer import Tokenizer

register("frame_nll", "Loss of a frame", higher_is_better=False)

_KEPT = 32  # beginnings of pieces kept for samples
_WORDS = 6  # tokens of a frame, approximately


class MusicMetric(Metric):
    """`frame_nll`: −log p of a frame given all frames before it, in nats, the mean over the frames of all pieces.

    A frame's probability is the product of its notes' probabilities, from the highest down, and of the full stop after them.
    As only this order of the notes counts, it is an upper bound of the negative log-likelihood of the frame as a set, the
    figure of Boulanger-Lewandowski et al. (2012). The end of a piece is not counted.
    """

    def __init__(self, tokenizer: Encoder | None, prompt: int, goes_on: int) -> None:
        if not isinstance(tokenizer, Tokenizer):
            raise ValueError("the task music reads notes as words, which needs a tokenizer of the kind word")
        self._tokenizer, self._prompt, self._goes_on = tokenizer, prompt, goes_on
        self._end = tokenizer.id(END)
        self._over, self._unk = (-1 if i is None else i for i in (tokenizer.eos_id, tokenizer.unk_id))
        self._nll, self._frames, self._unknown = 0.0, 0, 0
        self._model: MeasuredModel | None = None
        self._beginnings: list[list[Frame]] = []

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        labels = batch.labels
        assert labels is not None
        logits = model(**batch.inputs).float()
        known = (labels != IGNORE) & (labels != self._over)
        nll = -logits.log_softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        self._nll += float(nll[known].double().sum())
        self._frames += int((labels == self._end).sum())
        self._unknown += int((labels == self._unk).sum())
        self._model = model
        beginnings = [example["frames"] for example in batch.texts if example["begins"]]
        self._beginnings += beginnings[: _KEPT - len(self._beginnings)]

    def compute(self) -> dict[str, MetricValue]:
        if not self._frames:
            return {}
        how = f"nats, the mean of {self._frames:,} frames, each as its notes from the highest down"
        how += f"; {self._unknown:,} notes that training lacked are alike" if self._unknown else ""
        return {"frame_nll": MetricValue(self._nll / self._frames, how)}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [self._sample(frames, number) for number, frames in enumerate(self._beginnings[:count])]

    def _sample(self, frames: list[Frame], number: int) -> dict[str, Any]:
        prompt, true = frames[: self._prompt], frames[: self._prompt + self._goes_on]
        model, new = self._model, list[Frame]()
        if model is not None and hasattr(model, "generate"):
            new = continued(model, self._tokenizer, prompt, self._goes_on, number)
        piece = [*prompt, *new]
        midi = base64.b64encode(to_midi(piece)).decode()
        picture = {"kind": "roll", "prompt": len(prompt), "made": runs(piece), "true": runs(true), "midi": midi}
        return {"source": frames_to_text(prompt), "output": frames_to_text(new), "picture": picture}


def continued(
    model: MeasuredModel, tokenizer: Tokenizer, prompt: Sequence[Frame], goes_on: int, seed: int
) -> list[Frame]:
    """Sample at most `goes_on` frames that continue a prompt, of which the model reads the last frames that fill half of its
    context. Raises ValueError for an empty prompt if the tokenizer has no beginning-of-sequence token."""
    begins = tokenizer.bos_id is not None
    if not prompt and not begins:
        raise ValueError("this model has no beginning-of-sequence token to start from; give a piece to continue")
    room = getattr(model, "max_positions", None) or 2 * (_WORDS * goes_on + sum(len(frame) + 1 for frame in prompt))
    frames = _last(prompt, room // 2)
    prefix = tokenizer.encode(frames_to_text(frames), bos=begins and len(frames) == len(prompt))
    ids = torch.tensor([prefix], device=next(model.parameters()).device)
    new = min(_WORDS * goes_on, room - len(prefix))
    out = model.generate(ids, eos_id=tokenizer.eos_id, max_new_tokens=new, temperature=1.0, top_p=0.95, seed=seed)
    words = filter(is_music, tokenizer.tokens(out[0, len(prefix) :]))
    return text_to_frames(" ".join(words))[:goes_on]


def _last(frames: Sequence[Frame], words: int) -> list[Frame]:
    """The last frames that fit in `words` words; at least one, if there are any."""
    sizes = accumulate(len(frame) + 1 for frame in reversed(frames))
    return list(frames[-max(1, sum(size <= words for size in sizes)) :])
