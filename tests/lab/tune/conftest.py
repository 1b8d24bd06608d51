"""Settings with which `localise` trains in a moment."""

from __future__ import annotations

import pytest


@pytest.fixture
def pairs() -> list[str]:
    return [
        *(
            "model.d_model=16",
            "model.n_layers=1",
            "model.d_ff=16",
            "model.n_heads=2",
            "data.train=60",
            "data.languages=[de]",
        ),
        *("data.validation=8", "data.test=8", "tokenizer.vocab_size=300", "batching.tokens=512", "batching.workers=0"),
        *("training.max_steps=4", "training.eval_every=2", "training.save_every=null", "evaluation.examples=4"),
        *("generation.max_new_tokens=2", "training.precision=fp32", "training.metric=loss", "training.mode=min"),
    ]
