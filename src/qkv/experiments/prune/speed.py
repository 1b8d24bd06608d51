"""Speed of a run before and after pruning, measured in turns."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch

from ...core.batch import Batch
from ...inference.held_out import batches, recipe_of
from ...inference.run import Run
from ...inference.text import TextModel

TEXTS, ROUNDS, PREFIX = 64, 5, 200  # texts, times that each is measured, characters of running text


def speeds(before: Run, after: Run) -> dict[str, float]:
    """Return "before" and "after": generated tokens per second on validation texts, greedily, or where the run generates no
    texts, examples per second. The two are measured in turns; each value is the median of 5."""
    texts = _texts(before)
    some = [] if texts else batches(before, "validation", TEXTS)
    runs = {"before": before, "after": after}
    measure = {name: _generation(run, texts) if texts else _passes(run, some) for name, run in runs.items()}
    for once in measure.values():
        once()  # what is computed or compiled once
    taken = [(name, measure[name]()) for _ in range(ROUNDS) for name in runs]
    return {name: statistics.median(speed for other, speed in taken if other == name) for name in runs}


def _texts(run: Run) -> list[str]:
    """Texts that the run translates or continues; empty for other runs."""
    recipe = recipe_of(run)
    if recipe.task is not None or run.tokenizer is None:
        return []
    examples = itertools.islice(recipe.data.examples("validation", shuffle=False), TEXTS)
    texts = [str(example.get("source") or example.get("text", ""))[:PREFIX] for example in examples]
    return [text for text in texts if text.strip()]


def _generation(run: Run, texts: list[str]) -> Callable[[], float]:
    text_model: TextModel = run.text_model
    longest = (run.model.max_positions or 10**6) // 2
    prompts = [text_model.encode(text)[:longest] for text in texts]
    settings = run.settings(num_beams=1, num_samples=1, temperature=None, top_k=None, top_p=None, min_p=None)

    def once() -> float:
        start = time.perf_counter()
        outputs = text_model.outputs_of(prompts, settings)
        return sum(len(one.tokens) for several in outputs for one in several) / (time.perf_counter() - start)

    return once


def _passes(run: Run, some: list[Batch]) -> Callable[[], float]:
    @torch.inference_mode()
    def once() -> float:
        start = time.perf_counter()
        for batch in some:
            run.model(**batch.inputs)
        return sum(len(batch.texts) or batch.rows for batch in some) / (time.perf_counter() - start)

    return once
