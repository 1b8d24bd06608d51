from __future__ import annotations

from typing import Any

import pytest
import torch

import qkv
from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout
from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Word
from qkv.generation import generate
from qkv.look.pictures import draw
from qkv.runs.tasks.captioning.metric import CaptionMetric
from qkv.runs.tasks.captioning.task import Caption

TASK = Caption(mean=(0.0,) * 3, std=(1.0,) * 3)
WORDS = train(Word(), ["how many ?", "a red circle", "two"])
END = WORDS.eos_id


def batch_of(texts: list[tuple[str, str]]) -> Batch:
    """As the task makes it."""
    rows, labels = [], []
    for asked, answer in texts:
        prompt = [END, *WORDS.encode(asked), END] if asked else [END]
        whole = [*prompt, *WORDS.encode(answer), END]
        rows.append(whole[:-1])
        labels.append([IGNORE] * (len(prompt) - 1) + whole[len(prompt) :])
    width = max(map(len, rows))
    target = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    wanted = torch.tensor([row + [IGNORE] * (width - len(row)) for row in labels])
    layout = Layout.from_lengths([len(row) for row in rows], width)
    about: list[dict[str, Any]] = [{"where": "", "question": q, "answer": a} for q, a in texts]
    pixels = torch.rand(len(rows), 3, 16, 16)
    return Batch({"ids": pixels, "target": target, "target_layout": layout}, wanted, texts=tuple(about))


class Echo:
    """Writes given texts, and keeps what it was asked with."""

    def __init__(self, written: list[str]) -> None:
        self.written = written

    def hidden(self, ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
        return torch.zeros(len(ids), 1, 1)

    def generate(self, ids: torch.Tensor, *, target: list[list[int]], eos_id: int, **options: Any) -> torch.Tensor:
        self.asked = target
        width, made = max(map(len, target)), [[*WORDS.encode(text), eos_id] for text in self.written]
        longest = max(map(len, made))
        rows = zip(target, made, strict=True)
        return torch.tensor([[0] * (width - len(p)) + p + m + [eos_id] * (longest - len(m)) for p, m in rows])


def test_captions_and_answers_are_compared_with_the_truth() -> None:
    texts = [("", "a red circle"), ("how many ?", "two"), ("how many ?", "a")]
    model, metric = Echo(["a red circle", "two", "two"]), CaptionMetric(WORDS, TASK.replace({"max_length": 20}))
    metric.evaluate(model, batch_of(texts))
    assert model.asked == [[END], [END, *WORDS.encode("how many ?"), END], [END, *WORDS.encode("how many ?"), END]]
    found = {name: one.value for name, one in metric.compute().items()}
    assert found["exact"] == pytest.approx(2 / 3)
    assert (found["exact_captions"], found["exact_answers"]) == (1, 0.5) and "bleu" in found
    extremes = metric.extremes()
    assert extremes is not None and extremes.by == "chrf"
    assert [(one["output"], one["score"]) for one in extremes.best] == [("a red circle", 100), ("two", 100)]
    assert [(one["target"], one["picture"]["kind"]) for one in extremes.worst] == [("a", "image")]
    first, second = metric.samples(2)
    assert first["output"] == first["target"] == "a red circle" and second["source"] == "how many ?"
    assert "data:image/png;base64," in str(draw(first["picture"]))


def test_a_model_writes_from_pixels_what_it_says_step_by_step() -> None:
    spec = qkv.preset(
        "captioner",
        vocab_size=WORDS.vocab_size,
        image=(16, 16),
        patch=(8, 8),
        d_model=16,
        n_layers=1,
        n_heads=2,
        d_ff=16,
    )
    model = qkv.build(spec).eval()
    batch, metric = (
        batch_of([("", "a red circle"), ("how many ?", "two")]),
        CaptionMetric(WORDS, TASK.replace({"max_length": 12})),
    )
    metric.evaluate(model, batch)
    pixels, prompts = batch.inputs["ids"], [[END], [END, *WORDS.encode("how many ?"), END]]
    made = generate(model, pixels, target=prompts, eos_id=END, max_new_tokens=5)
    for row, prompt in enumerate(prompts):
        ids = list(prompt)
        with torch.no_grad():
            for token in made.sequences[row][0]:
                logits = model(pixels[row : row + 1], torch.tensor([ids]))[0, -1]
                assert token == int(logits.argmax())
                ids.append(token)
    with pytest.raises(ValueError, match="images are"):
        generate(model, pixels[:, :2], bos_id=END)
    with pytest.raises(ValueError, match="an attention mask is for tokens"):
        generate(model, pixels, bos_id=END, attention_mask=torch.ones(2, 4))
