"""How well a model predicts music, and how it goes on with a piece."""

from __future__ import annotations

import base64
from typing import Any

import torch
from torch import nn

from ...core.batch import IGNORE, Batch
from ..encoding import Encoder
from ..judge import Judge, Measured
from ..midi import written
from ..notes import END, Frame, frames_in, is_music, runs, spelled
from ..tokenizer import Tokenizer

_KEPT = 32  # beginnings of pieces that are remembered
_WORDS = 6  # tokens of a frame, about


class MusicJudge(Judge):
    """`frame_nll`: −log p of a frame given all frames before it, in nats, the mean over the frames of all pieces.

    A frame's probability is the product of those of its notes, from the highest down, and of the full stop behind them. As
    one order of the notes stands for all, this is an upper bound of the negative log-likelihood of the frame as a set, the
    figure of Boulanger-Lewandowski et al. (2012). The end of a piece is not counted.
    """

    def __init__(self, tokenizer: Encoder | None, prompt: int, goes_on: int) -> None:
        if not isinstance(tokenizer, Tokenizer):
            raise ValueError("music is read in words, which needs a tokenizer of the kind word")
        self._tokenizer, self._prompt, self._goes_on = tokenizer, prompt, goes_on
        self._end = tokenizer.id(END)
        self._over, self._unk = (-1 if i is None else i for i in (tokenizer.eos_id, tokenizer.unk_id))
        self._nll, self._frames, self._unknown = 0.0, 0, 0
        self._model: nn.Module | None = None
        self._begun: list[list[Frame]] = []

    def read(self, model: nn.Module, batch: Batch) -> None:
        labels = batch.labels
        assert labels is not None
        logits = model(**batch.inputs).float()
        known = (labels != IGNORE) & (labels != self._over)
        nll = -logits.log_softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        self._nll += float(nll[known].double().sum())
        self._frames += int((labels == self._end).sum())
        self._unknown += int((labels == self._unk).sum())
        self._model = model
        begun = [example["frames"] for example in batch.texts if example["begins"]]
        self._begun += begun[: _KEPT - len(self._begun)]

    def found(self) -> dict[str, Measured]:
        if not self._frames:
            return {}
        how = f"nats, the mean of {self._frames:,} frames, each as its notes from the highest down"
        how += f"; {self._unknown:,} notes that training lacked are alike" if self._unknown else ""
        return {"frame_nll": Measured(self._nll / self._frames, how)}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [self._sample(frames, number) for number, frames in enumerate(self._begun[:count])]

    def _sample(self, frames: list[Frame], number: int) -> dict[str, Any]:
        prompt, true = frames[: self._prompt], frames[: self._prompt + self._goes_on]
        made = self._continued(prompt, number)[: self._prompt + self._goes_on]
        picture = {
            "kind": "roll",
            "prompt": len(prompt),
            "made": runs(made),
            "true": runs(true),
            "midi": base64.b64encode(written(made)).decode(),
        }
        return {"source": spelled(prompt), "output": spelled(made[len(prompt) :]), "picture": picture}

    def _continued(self, prompt: list[Frame], seed: int) -> list[Frame]:
        """A piece that begins so, drawn from the model."""
        generate = getattr(self._model, "generate", None)
        if generate is None or self._model is None:
            return prompt
        tokenizer = self._tokenizer
        begun = tokenizer.encode(spelled(prompt), bos=tokenizer.bos_id is not None)
        room = getattr(self._model, "max_positions", None) or _WORDS * self._goes_on + len(begun)
        device = next(self._model.parameters()).device
        ids = torch.tensor([begun], device=device)
        new = min(_WORDS * self._goes_on, room - len(begun))
        out = generate(ids, eos_id=tokenizer.eos_id, max_new_tokens=new, temperature=1.0, top_p=0.95, seed=seed)
        words = filter(is_music, tokenizer.tokens(out[0, len(begun) :]))
        return prompt + frames_in(" ".join(words))
