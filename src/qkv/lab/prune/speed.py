"""Speed of a run before and after pruning, measured in turns."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from ...core.batch import Batch
from ...runs.inference.held_out import batches, recipe_of
from ...runs.inference.run import Run

TEXTS, ROUNDS, PREFIX = 64, 7, 200  # texts, times that each is measured, characters of running text
NEW_TOKENS = 32  # generated for each text by both runs, so they do the same work
LEAST = 0.15  # seconds that a measurement takes at least


def speeds(before: Run, after: Run) -> dict[str, float]:
    """Return "before" and "after": generated tokens per second on validation texts, greedily, or if the run generates
    no texts, examples per second.

    The two are measured in turns. "before" is the median of 7 measurements, and "after" is "before" times the median of the
    ratios of neighbors, which other work on the machine changes least.
    """
    texts = _texts(before)
    some = [] if texts else batches(before, "validation", TEXTS)
    runs = {"before": before, "after": after}
    measure = {name: _generation(run, texts) if texts else _passes(run, some) for name, run in runs.items()}
    for once in measure.values():
        once()  # what is computed or compiled once
    pairs = [(measure["before"](), measure["after"]()) for _ in range(ROUNDS)]
    first = statistics.median(pair[0] for pair in pairs)
    return {"before": first, "after": first * statistics.median(second / first for first, second in pairs)}


def _texts(run: Run) -> list[str]:
    """Texts that the run translates or continues; empty for other runs."""
    recipe = recipe_of(run)
    if recipe.task is not None or run.tokenizer is None:
        return []
    examples = itertools.islice(recipe.data.examples("validation", shuffle=False), TEXTS)
    texts = [str(example.get("source") or example.get("text", ""))[:PREFIX] for example in examples]
    return [text for text in texts if text.strip()]


def _generation(run: Run, texts: list[str]) -> Callable[[], float]:
    longest = (run.model.max_positions or 10**6) // 2
    prompts = [run.encode(text)[:longest] for text in texts]
    count = min(NEW_TOKENS, longest)
    greedy: dict[str, Any] = {"num_beams": 1, "num_samples": 1}
    greedy |= dict.fromkeys(("temperature", "top_k", "top_p", "min_p"))
    settings = run.settings(**greedy, min_new_tokens=count, max_new_tokens=count)

    def generated() -> int:
        return sum(len(one.tokens) for several in run.outputs_of(prompts, settings) for one in several)

    return lambda: _rate(generated)


def _passes(run: Run, some: list[Batch]) -> Callable[[], float]:
    @torch.inference_mode()
    def examples() -> int:
        for batch in some:
            run.model(**batch.inputs)
        return sum(len(batch.texts) or batch.rows for batch in some)

    return lambda: _rate(examples)


def _rate(work: Callable[[], int]) -> float:
    """Return the items per second that `work` completes, repeating it for at least `LEAST` seconds."""
    start, done = time.perf_counter(), work()
    while (taken := time.perf_counter() - start) < LEAST:
        done += work()
    return done / taken
