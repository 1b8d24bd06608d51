"""The task `recognize-ctc`: speech recognition by an encoder whose frames are symbols or blanks, and its prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from pydantic import Field

from ....core.batch import Batch
from ....core.metrics.base import MeasuredModel, Metric
from ....core.spec import counted
from ....data.media.audio import Wave
from ....data.source import Example, Skipped, Source
from ....data.task import Item, RandomContext
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....generation.ctc import Spelled, greedy, prefix_beam_search, spelled
from ....nn.layers.frames import Frames
from ....nn.models.heads.ctc import CTCHead, frames_needed, frames_of
from ..prediction import TrainedModel
from ..prediction_batches import predict_examples
from .fusion import fusion_of
from .metric import SpeechMetric
from .task import SpeechRecognition, predict

_BEAMS = 16  # by default, with a language model
_CHECKED = 500  # training sounds whose lengths are compared with their texts


class SpokenWord(NamedTuple):
    """A word, and where it starts and ends, in seconds."""

    text: str
    start: float
    end: float


class RecognizeCTC(SpeechRecognition, kind="recognize-ctc"):
    """The text of a sound, by connectionist temporal classification (Graves et al. 2006).

    Each token of the encoder gives a symbol or the blank, which is the tokenizer's padding token. A text longer than its
    sound has tokens, with a blank between equal symbols, can't be learned: training skips and counts it.

    Texts are the likeliest alignment's, or with `beams` above 1 or an `lm` those of prefix beam search.

    lm:         a language model that helps in prefix beam search: an ARPA file of n-grams of words, or the directory of a
                run of `qkv train lm` or of a Hub model.
    lm_weight:  α, by which its log-probability is multiplied.
    word_bonus: β, which is added for each word.
    """

    recipe_defaults: ClassVar[dict[str, dict[str, Any]]] = {"head": {"kind": "ctc"}, "objective": {"kind": "ctc"}}
    decoding: ClassVar[tuple[str, ...]] = (*SpeechRecognition.decoding, "lm", "lm_weight", "word_bonus")

    lm: str | None = None
    lm_weight: float = Field(default=0.5, ge=0)
    word_bonus: float = 0.0

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        assert tokenizer is not None
        texts = tokenizer.encode_batch([example["text"] for example in examples])
        return [self._item(*pair, tokenizer, randomness) for pair in zip(examples, texts, strict=True)]

    def _item(
        self, example: Example, text: Sequence[int], tokenizer: Encoder, randomness: RandomContext
    ) -> Item | Skipped:
        item = self.inputs(example, tokenizer, randomness)
        if isinstance(item, Skipped):
            return item
        assert item.tokens is not None
        if randomness.training and not len(text):
            return Skipped("with an empty transcript", example.get("where", ""))
        if randomness.training and frames_needed(list(text)) > item.tokens:
            return Skipped("with a text longer than the sound's tokens", example.get("where", ""))
        return Item(item.arrays, np.array(text, np.int64), tokens=item.tokens, example=item.example)

    def check_inputs(self, source: Source, tokenizer: Encoder | None) -> list[str]:
        notes = super().check_inputs(source, tokenizer)
        if tokenizer is None:
            return notes
        randomness = RandomContext(np.random.default_rng(0), training=False)
        examples = list(islice(source.examples("train", shuffle=True), _CHECKED))
        items = self.items(examples, tokenizer, randomness)
        pairs = [(list(map(int, one.labels)), one.tokens or 0) for one in items if isinstance(one, Item)]  # type: ignore[arg-type]
        long = [(text, tokens) for text, tokens in pairs if frames_needed(text) > tokens]
        if not long:
            return notes
        text, tokens = max(long, key=lambda pair: frames_needed(pair[0]) - pair[1])
        return [
            *notes,
            f"{len(long):,} of {counted(len(pairs), 'training text')} that were looked at are longer than their sounds, and "
            f"are skipped: one needs {frames_needed(text):,} tokens, and its sound has {tokens:,}; smaller strides of the "
            "model's input or a smaller task.hop give more",
        ]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return SpeechMetric(self, cast(TextDecoder, tokenizer))

    def texts_of(self, model: MeasuredModel, outputs: torch.Tensor, batch: Batch, tokenizer: TextDecoder) -> list[str]:
        """The texts of a model's outputs (B, T, V)."""
        head = cast(CTCHead, model.head)
        lengths = frames_of(batch.inputs["layout"], *outputs.shape[:2])
        rows = (
            greedy(outputs, lengths, head.blank) if self.greedy else self._searched(outputs, lengths, head, tokenizer)
        )
        return [tokenizer.decode(row, skip_special=False).strip() for row in rows]

    @property
    def greedy(self) -> bool:
        """Whether decoding is greedy: the likeliest symbol of every frame, without a beam search or a language model."""
        return self.beams == 1 and self.lm is None

    def _searched(
        self, outputs: torch.Tensor, lengths: Sequence[int], head: CTCHead, tokenizer: TextDecoder
    ) -> list[tuple[int, ...]]:
        """The symbols of each row that prefix beam search finds best."""
        score = None if self.lm is None else fusion_of(self.lm, tokenizer, self.lm_weight, self.word_bonus)
        beams = self.beams if self.beams > 1 else _BEAMS
        rows = zip(outputs.log_softmax(-1), lengths, strict=True)
        return [prefix_beam_search(row[:n], head.blank, beams=beams, score=score)[0].symbols for row, n in rows]

    def heard_words(self, trained: TrainedModel, waves: Sequence[Wave]) -> list[list[SpokenWord]]:
        """Return the words of each waveform at the rate `rate`, with their times by the likeliest alignment."""
        front, head = self.front, cast(CTCHead, trained.model.head)
        assert front is not None
        hop = round(self.hop * self.sampled_at) if isinstance(front, Frames) else 1
        seconds = math.prod(cast(Any, front).strides) * hop / self.sampled_at

        def words(outputs: torch.Tensor, batch: Batch) -> list[list[SpokenWord]]:
            lengths = frames_of(batch.inputs["layout"], *outputs.shape[:2])
            paths = (row[:length] for row, length in zip(outputs.argmax(-1).tolist(), lengths, strict=True))
            return [_words(spelled(path, head.blank), trained.words, seconds) for path in paths]

        return predict_examples(trained, self, self.examples_of(waves), words)

    def transcribed(self, trained: TrainedModel, examples: Sequence[Example]) -> list[str]:
        return predict_examples(
            trained, self, examples, lambda outputs, batch: self.texts_of(trained.model, outputs, batch, trained.words)
        )


def _words(symbols: Sequence[Spelled], tokenizer: Any, seconds: float) -> list[SpokenWord]:
    """The words of an alignment; a token lasts for some seconds."""
    found: list[SpokenWord] = []
    before = ""
    for i, one in enumerate(symbols):
        text = tokenizer.decode([symbol.symbol for symbol in symbols[: i + 1]], skip_special=False)
        added, before = text[len(before) :], text
        if not added.strip():
            continue
        begins = not found or text[: len(text) - len(added)][-1:].isspace() or added[:1].isspace()
        word, start = ("", one.first * seconds) if begins else (found.pop()[:2])
        found.append(SpokenWord(word + added.strip(), start, (one.last + 1) * seconds))
    return found


RecognizeCTC.predicts(predict)
