"""Texts of several requests in one batch get, to the bit, what each gets by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.io.directories.build import build
from qkv.io.families import FAMILIES
from qkv.nn.models.fused_step.encoding import encodes_in_panels
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.nn.models.transformer import Transformer
from qkv.runs.inference.run import Run
from qkv.serving.engine.engine import Engine
from qkv.serving.engine.text_jobs import TextJobs

TEXT = "the cat is 3 years old and the dog is 40 years young or so it seems"
WORDS = TEXT.split()
TEXTS = [" ".join((WORDS * 9)[i : i + length]) for i, length in enumerate((1, 2, 3, 5, 8, 9, 17, 30, 44, 80))]
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 300,
}
T5 = {"d_model": 32, "d_kv": 16, "num_layers": 2, "num_heads": 2, "d_ff": 64, "vocab_size": 300}
CLASSES = SequenceClassifier(labels=3, activation="tanh")


def made(family: str, head: SequenceClassifier | None = None, **config: Any) -> Run:
    spec = FAMILIES[family].spec({"model_type": family, **config})
    assert isinstance(spec, Transformer)
    spec = spec if head is None else spec.replace(head=head)
    return Run(build(spec, seed=1).eval(), train(BPE(vocab_size=300), [TEXT] * 3))


def answers(run: Run, fast: bool, together: bool, texts: Sequence[str] = TEXTS) -> tuple[list[Any], int]:
    """What the engine gives for each text as a request, and how many of them joined another."""
    jobs, engine = TextJobs(run, fast), Engine(4096, threads=2)
    head = isinstance(run.model.spec.head, SequenceClassifier)

    def compute(some: Sequence[str]) -> list[Any]:
        return run.classify(some) if head else list(run.embed_array(some))

    if not together:
        engine.start()
    futures = []
    for text in texts:
        futures.append(engine.do(jobs.job("kind", [text], compute, head)))
        if not together:
            futures[-1].result(60)
    if together:
        engine.start()
    found = [future.result(60)[0] for future in futures]
    engine.close(60)
    return found, engine.statistics.joined


@pytest.mark.parametrize(
    ("family", "head", "config"),
    [
        ("bert", None, SMALL),
        ("bert", CLASSES, SMALL),
        ("albert", None, SMALL | {"embedding_size": 16}),
        ("t5", None, T5),
        ("modernbert", None, SMALL | {"global_attn_every_n_layers": 1}),
    ],
)
def test_a_text_gets_the_same_numbers_in_any_batch(
    family: str, head: SequenceClassifier | None, config: dict[str, Any]
) -> None:
    run = made(family, head, **config)
    alone, none = answers(run, False, together=False)
    joined, count = answers(run, False, together=True)
    stack: Any = run.model.encoder
    assert none == 0 and count == (len(TEXTS) - 1 if encodes_in_panels(stack, torch.float32) else 0)
    for one, other in zip(alone, joined, strict=True):
        assert (one == other) if head is not None else (one == other).all()


def test_what_depends_on_the_batch_is_joined_only_if_that_is_allowed() -> None:
    run = made("bert", SequenceClassifier(labels=3, pool="mean"), **SMALL)  # a sum whose order depends on the padding
    alone, _ = answers(run, False, together=False)
    apart, none = answers(run, False, together=True)
    joined, count = answers(run, True, together=True)
    assert alone == apart and none == 0 and count == len(TEXTS) - 1
    for one, close in zip(alone, joined, strict=True):
        assert one.probabilities == pytest.approx(close.probabilities, rel=1e-5)
