"""batch-invariant: what is generated for a request does not depend on what shares its batch; and a beam search, which
reorders every cache at every step, scores its hypotheses as the model without a cache does.
"""

from __future__ import annotations

import pytest
from axes import BLOCKS, DECODERS, HEADS, backends, is_causal, named, patterns, positions, sees_ahead, words
from selection import Combination, Contract
from small import ids, model

from qkv.generation import generate, score
from qkv.nn.models.heads.language_model import LanguageModel

EOS, BOS, NEW = 3, 1, 7
UNTIED = LanguageModel(tied=False)
PROMPTS = [ids(n, seed=n).tolist() for n in (4, 9, 5)]
TARGETS = [ids(n, seed=20 + n).tolist() for n in (6, 4, 5)]


def senseless(case: Combination) -> str | None:
    return (
        "the pattern sees what comes later, so it can't be decoded step by step"
        if sees_ahead(case.pattern, 4)
        else None
    )


AXES = {
    "pattern": patterns(),
    "position": positions(),
    "backend": backends(),
    "family": words(*DECODERS),
    "heads": named(HEADS),
    "block": named(BLOCKS),
}


def prompts(case: Combination) -> tuple[object, dict[str, object]]:
    """The decoder's prompts are longer than any prefix here; an encoder–decoder's sources are the PROMPTS."""
    built = model(case.family, case.pattern, case.position, case.backend, case.heads, case.block, head=UNTIED)
    return built, {"bos_id": BOS, "eos_id": EOS, "max_new_tokens": NEW}


@pytest.mark.contract(Contract(AXES, senseless, turned=["heads", "block"], share=10))
def test_greedy_outputs_do_not_depend_on_the_batch(case: Combination) -> None:
    built, options = prompts(case)
    paired = case.family == "encoder-decoder"
    together = generate(built, PROMPTS, **options, **({"target": TARGETS} if paired else {})).best  # type: ignore[arg-type]
    backwards = generate(built, PROMPTS[::-1], **options, **({"target": TARGETS[::-1]} if paired else {})).best  # type: ignore[arg-type]
    assert backwards[::-1] == together
    for i, prompt in enumerate(PROMPTS):
        single = generate(built, [prompt], **options, **({"target": [TARGETS[i]]} if paired else {})).best[0]  # type: ignore[arg-type]
        assert single == together[i]


def test_what_is_generated_says_something() -> None:
    """The model here answers different prompts differently: the contract above could fail."""
    found = generate(model("decoder", head=UNTIED), PROMPTS, max_new_tokens=NEW).best
    assert len({tuple(row) for row in found}) == len(PROMPTS)


def unscored(case: Combination) -> str | None:
    if case.family == "encoder-decoder" and not is_causal(case.pattern):
        return "a prefix is longer than the single starting token that an encoder–decoder is scored from"
    return senseless(case)


@pytest.mark.contract(Contract(AXES, unscored, turned=["heads", "block"], fast=1))  # pairs of values: test_cached
def test_beams_do_not_depend_on_the_batch(case: Combination) -> None:
    built, options = prompts(case)
    options |= {"num_beams": 3, "num_samples": 3, "length_penalty": 0.0, "scores": True}
    found = generate(built, PROMPTS, **options)  # type: ignore[arg-type]
    assert found.scores is not None
    assert found.log_probs is not None
    for i, prompt in enumerate(PROMPTS):
        wanted = score(built, [prompt] * 3, found.sequences[i], bos_id=BOS)  # type: ignore[arg-type]
        assert found.scores[i] == pytest.approx(wanted.totals, abs=1e-4)  # beams keep scores in single precision
        for got, log_probs in zip(found.log_probs[i], wanted.log_probs, strict=True):
            assert got == pytest.approx(log_probs, abs=1e-4)
        assert found.scores[i] == sorted(found.scores[i], reverse=True)
