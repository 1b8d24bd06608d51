"""Every comparison that comes with qkv runs, each of its variants, in small."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.runs.compare.compare import compare
from qkv.runs.compare.comparison import Comparison
from qkv.runs.recipes.packaged import packaged

TINY = {
    "extrapolate": [
        *("data.packages=[json]", "data.validation=0.3", "data.test=0.3", "tokenizer.vocab_size=300"),
        *("model.d_model=16", "model.n_layers=1", "measure.factors=[1,2]", "measure.tokens=256"),
        *("batching.tokens=128", "training.optimizer={kind: adamw, lr: 1e-3}"),
    ],
    "bottleneck": [
        *("data.longest=12", "data.train=200", "data.validation=20", "data.test=20"),
        *("model.d_e=8", "model.d_h=8", "model.d_s=8", "batching.tokens=256", "measure.examples=12"),
        "measure.beside=[{kind: alignment, examples: 4}, {kind: speed, lengths: [4, 8], tokens: 64}, "
        "{kind: sequential-steps}, {kind: reach, length: 5}]",
    ],
    "long-range": [
        *("data.longest=40", "data.train=40", "data.validation=4", "data.test=4"),
        *("model.d_model=16", "model.encoder_layers=1", "model.d_ff=16", "batching.tokens=256"),
        *("batching.max_length=64", "training.schedule=constant", "training.max_time=null"),
        "evaluation.metrics=[exact-match]",
    ],
}
SHORT = [
    *("training.max_steps=2", "training.eval_every=1", "training.save_every=null", "batching.workers=0"),
    *("evaluation.examples=4", "evaluation.test_examples=4", "evaluation.samples=1", "generation.max_new_tokens=2"),
]
COMPARISONS = [name for name in sorted(packaged()) if Comparison.load(name) is not None]


def test_every_one_is_here() -> None:
    assert set(COMPARISONS) == set(TINY)


@pytest.mark.parametrize("name", COMPARISONS)
def test_each_variant_is_a_recipe_as_it_is_shipped(name: str) -> None:
    comparison = Comparison.load(name)
    assert comparison is not None
    sizes = {v: comparison.variant(v).model.spec(1000).n_parameters for v in comparison.variants}
    assert max(sizes.values()) < 1.3 * min(sizes.values()), "what is compared has about one size"


@pytest.mark.slow  # their measures are in `test_compare`, their models in the contracts
@pytest.mark.parametrize("name", COMPARISONS)
def test_each_shipped_comparison_runs(name: str, tmp_path: Path) -> None:
    comparison = Comparison.load(name, [*TINY[name], *SHORT])
    assert comparison is not None
    done = compare(comparison, tmp_path / "out", device="cpu")
    assert done.report is not None and set(done.curves) == set(comparison.variants)
    assert all(curve for curve in done.curves.values())
