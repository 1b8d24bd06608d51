"""batch-invariant: what is generated for a request does not depend on what shares its batch; and a beam search, which
reorders every cache at every step, scores its hypotheses as the model without a cache does.
"""

from __future__ import annotations

import pytest
from axes import BLOCKS, DECODERS, HEADS, backends, named, patterns, positions, sees_ahead, words
from selection import Combination, Contract
from small import ids, model

from qkv.generate import generate, score

EOS, BOS, NEW = 3, 1, 9
PROMPTS = [ids(n, seed=n).tolist() for n in (4, 9, 5, 7)]
TARGETS = [ids(n, seed=20 + n).tolist() for n in (6, 4, 5, 7)]


def senseless(case: Combination) -> str | None:
    return "the pattern sees what comes later, so it can't be decoded step by step" if sees_ahead(case.pattern, 4) else None


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
    built = model(case.family, case.pattern, case.position, case.backend, case.heads, case.block)
    return built, {"bos_id": BOS, "eos_id": EOS, "max_new_tokens": NEW}


@pytest.mark.contract(Contract(AXES, senseless, turned=["heads", "block"]))
def test_greedy(case: Combination) -> None:
    built, options = prompts(case)
    paired = case.family == "encoder-decoder"
    together = generate(built, PROMPTS, **options, **({"target": TARGETS} if paired else {})).best  # type: ignore[arg-type]
    backwards = generate(built, PROMPTS[::-1], **options, **({"target": TARGETS[::-1]} if paired else {})).best  # type: ignore[arg-type]
    assert backwards[::-1] == together
    for i, prompt in enumerate(PROMPTS):
        single = generate(built, [prompt], **options, **({"target": [TARGETS[i]]} if paired else {})).best[0]  # type: ignore[arg-type]
        assert single == together[i]
    assert len({tuple(row) for row in together}) > 1


def unscored(case: Combination) -> str | None:
    roles = "prefix" in str(case.pattern) and "length=None" in str(case.pattern)
    if case.family == "encoder-decoder" and case.pattern.mask(8).triu(1).any():
        return "a prefix longer than the single starting token that `score` feeds an encoder–decoder"
    return senseless(case) or ("`score` takes no roles" if roles and False else None)


@pytest.mark.contract(Contract(AXES, unscored, turned=["heads", "block"]))
def test_beams(case: Combination) -> None:
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
