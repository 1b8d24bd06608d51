"""The costs of a variant."""

from __future__ import annotations

from pathlib import Path

from small_comparison import load_comparison

from qkv.io.directories.layout import read_json
from qkv.runs.compare.compare import compare


def test_a_deeper_variant_keeps_and_counts_more(recipe: Path, tmp_path: Path) -> None:
    """More layers keep more and have more parameters; the test split's metrics are the run's."""
    settings = ["compare.learned=null", "compare.deeper={model.n_layers: 4}"]
    done = compare(load_comparison(recipe, *settings), tmp_path / "out", device="cpu")
    alibi, deeper = done.costs["alibi"], done.costs["deeper"]
    assert alibi.parameters < deeper.parameters and 0 < alibi.kept < deeper.kept
    assert alibi.tokens == deeper.tokens > 0 and alibi.seconds > 0
    assert alibi.metrics == read_json(tmp_path / "out" / "alibi" / "evaluation.json")["metrics"]
