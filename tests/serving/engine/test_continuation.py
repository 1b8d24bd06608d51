"""Continuations of one request: log-probabilities, samples and scored prompts."""

from __future__ import annotations

from typing import Any

import pytest
from served_runs import OPTIONS, TEXTS, Asked

from qkv.runs.inference.run import Run
from qkv.serving.engine.decoder import Decoder
from qkv.serving.engine.engine import Engine


def test_log_probabilities_do_not_depend_on_what_runs_beside(engine: tuple[Engine, Decoder]) -> None:
    def tokens(one: Asked) -> tuple[Any, ...]:
        one.texts()
        return one.endings[0].tokens

    alone = [tokens(Asked(*engine, text, likeliest=3, **options)) for text, options in zip(TEXTS, OPTIONS, strict=True)]
    noise = [Asked(*engine, text, max_new_tokens=30) for text in TEXTS]
    beside = [Asked(*engine, text, likeliest=3, **options) for text, options in zip(TEXTS, OPTIONS, strict=True)]
    assert [tokens(one) for one in beside] == alone  # floats, to the bit
    for one in noise:
        one.texts()


def test_samples_of_one_prompt_are_those_of_generate(run: Run, engine: tuple[Engine, Decoder]) -> None:
    options: dict[str, Any] = {"num_samples": 3, "temperature": 1.0, "seed": 4, "max_new_tokens": 8}
    assert Asked(*engine, TEXTS[0], **options).texts() == run.generate(TEXTS[0], **options)


def test_the_prompts_tokens_are_scored(run: Run, engine: tuple[Engine, Decoder]) -> None:
    one = Asked(*engine, TEXTS[2], max_new_tokens=2, echo=True, likeliest=2)
    one.texts()
    wanted = run.score(TEXTS[2])
    assert [token.log_prob for token in one.work.read[1:]] == pytest.approx(wanted.log_probs, abs=1e-5)
    assert one.work.read[0].log_prob is None and [token.id for token in one.work.read] == list(one.work.prompt)
