"""Prediction of captions of pictures, and of answers to questions about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..prediction import Prediction, TrainedModel
from ..prediction_batches import in_parts
from .metric import written
from .task import Caption


@Caption.predicts
def predict(task: Caption, trained: TrainedModel, lines: Sequence[str], **options: Any) -> Iterator[Prediction]:
    """A text for each line, which is a picture's file, or a file, a tab, and a question; written as in evaluation.

    Raises ValueError for a file that holds no picture, and a question that leaves no room for an answer.
    """
    tokenizer = trained.words
    for part in in_parts(lines):
        split = [(path, question.strip()) for path, _, question in (line.partition("\t") for line in part)]
        asked = tokenizer.encode_batch([question for _, question in split])
        prompts = [task.prompt(ids, tokenizer) for ids in asked]
        for (_, question), prompt in zip(split, prompts, strict=True):
            if len(prompt) >= task.max_length:
                raise ValueError(
                    f"the question {question[:60]!r} has {len(prompt)} tokens with those around it, and question and "
                    f"answer have room for {task.max_length}; ask a shorter one"
                )
        pictures = np.stack([task.numbers(task.drawn(task.read(path))) for path, _ in split])
        on_device = torch.from_numpy(pictures).to(trained.model.device)
        texts = written(trained.model, on_device, prompts, tokenizer, task.max_length)
        for line, (path, question), text in zip(part, split, texts, strict=True):
            yield Prediction(line, text, f"{path}: {text}", {"question": question, "output": text})
