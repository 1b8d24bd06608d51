"""The task `recognize`: speech recognition by a decoder that attends to an encoder of sound, and its prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from pydantic import Field

from ....core.batch import Batch
from ....core.metrics.base import MeasuredModel, Metric
from ....data.source import Example, Skipped
from ....data.task import Item, RandomContext
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.models.base import ModelSpec
from ..prediction import TrainedModel
from ..prediction_batches import prediction_batches
from .metric import SpeechMetric
from .task import SpeechRecognition, predict


class Recognize(SpeechRecognition, kind="recognize"):
    """The text of a sound, by attention (Listen, Attend and Spell, Chan et al. 2016; Speech-Transformer, Dong et al. 2018).

    The encoder reads the sound. The decoder reads start + text, learns each token of the text and the end after it, and
    generates a text greedily or with `beams`. A tokenizer without a beginning-of-sequence token starts with its
    end-of-sequence token.

    max_length: the most tokens of a text; sounds with longer ones are skipped and counted in training.
    """

    recipe_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "head": {"kind": "language-model"},
        "objective": {"kind": "labels"},
    }

    max_length: int = Field(default=256, ge=1)

    def of_model(self, spec: ModelSpec) -> Self:
        if not getattr(spec, "is_encoder_decoder", False):
            raise ValueError(
                f"the task {self.kind} needs an encoder of sound and a decoder of text, such as "
                "model.preset=speech-transformer; an encoder alone learns by task.kind=recognize-ctc"
            )
        return self

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        assert tokenizer is not None
        start, end = edges(tokenizer)
        texts = tokenizer.encode_batch([example["text"] for example in examples])
        return [self._item(*pair, start, end, tokenizer, randomness) for pair in zip(examples, texts, strict=True)]

    def _item(
        self, example: Example, text: Sequence[int], start: int, end: int, tokenizer: Encoder, randomness: RandomContext
    ) -> Item | Skipped:
        if randomness.training and not len(text):
            return Skipped("with an empty transcript", example.get("where", ""))
        if randomness.training and len(text) > self.max_length:
            return Skipped(f"with a text of more than {self.max_length:,} tokens", example.get("where", ""))
        item = self.inputs(example, tokenizer, randomness)
        if isinstance(item, Skipped):
            return item
        arrays = {**item.arrays, "target": np.array([start, *text], np.int64)}
        return Item(arrays, np.array([*text, end], np.int64), tokens=item.tokens, example=item.example)

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return SpeechMetric(self, cast(TextDecoder, tokenizer))

    def texts_of(
        self, model: MeasuredModel, outputs: torch.Tensor | None, batch: Batch, tokenizer: TextDecoder
    ) -> list[str]:
        """The texts that a model writes of a batch's sounds."""
        start, end = edges(cast(Encoder, tokenizer))
        ids = batch.inputs["ids"]
        made: torch.Tensor = model.generate(
            ids,
            layout=batch.inputs["layout"],
            target=[[start]] * len(ids),
            eos_id=end,
            pad_id=end,
            max_new_tokens=self.max_length,
            num_beams=self.beams,
        )
        rows = (row[1:] for row in made.tolist())
        return [tokenizer.decode(row[: row.index(end)] if end in row else row).strip() for row in rows]

    def transcribed(self, trained: TrainedModel, examples: Sequence[Example]) -> list[str]:
        texts: dict[int, str] = {}
        for numbers, batch in prediction_batches(trained, self, examples):
            texts |= zip(numbers, self.texts_of(trained.model, None, batch, trained.words), strict=True)
        return [texts[i] for i in range(len(examples))]


def edges(tokenizer: Encoder) -> tuple[int, int]:
    """The tokens that start and end a text. Raises ValueError for a tokenizer without an end."""
    end = tokenizer.eos_id
    if end is None:
        raise ValueError("the task recognize needs a tokenizer with an end-of-sequence token; set tokenizer.eos")
    return (end if tokenizer.bos_id is None else tokenizer.bos_id), end


Recognize.predicts(predict)
