"""Samples of denoising: what the encoder reads, what the model writes, and the target."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Word
from qkv.runs.tasks.denoising.metric import DenoisingMetric

WORDS = train(Word(mask="[MASK]", bos="<s>", eos="</s>"), ["the cat sat"])


def test_samples_are_generated_from_what_the_encoder_reads() -> None:
    the, cat, sat = WORDS.encode("the cat sat", control=False)
    begin, end, mask = WORDS.bos_id, WORDS.eos_id, WORDS.mask_id
    asked: list[Any] = []

    def generate(sources: Any, **options: Any) -> Any:
        asked.append((sources, options))
        return torch.tensor([[begin, the, sat, end]])

    ids, target = torch.tensor([[the, mask, sat, 0]]), torch.tensor([[begin, the, cat, sat]])
    labels = torch.tensor([[the, cat, sat, end]])
    inputs = {"ids": ids, "layout": Layout.from_mask(torch.tensor([[1, 1, 1, 0]])), "target": target}
    batch = Batch(inputs, labels, {"loss": int((labels != IGNORE).sum())})
    (sample,) = DenoisingMetric(WORDS).generate(SimpleNamespace(generate=generate), batch, 1)  # type: ignore[arg-type]
    assert sample == {"source": "the [MASK] sat", "output": "the sat", "target": "the cat sat"}
    ((sources, options),) = asked
    assert sources == [[the, mask, sat]]  # without padding
    assert (options["bos_id"], options["eos_id"], options["max_new_tokens"]) == (begin, end, 4)


def test_packed_rows_are_not_shown() -> None:
    def rows(segments: list[int]) -> Batch:
        layout = Layout(
            torch.tensor([[0, 1, 0, 1]]), segments=torch.tensor([segments]), one_segment=len(set(segments)) == 1
        )
        return Batch({"layout": layout}, None, {})

    assert not DenoisingMetric(WORDS).can_show(rows([0, 0, 1, 1]))
    assert DenoisingMetric(WORDS).can_show(rows([0, 0, 0, 0]))
