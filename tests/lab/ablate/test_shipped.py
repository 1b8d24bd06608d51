"""Every ablation that comes with qkv runs, each of its variants, in small."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.lab.ablate.ablation import Ablation
from qkv.lab.ablate.study import run_ablation
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import ABLATE, tree

SHORT = [
    *("training.max_steps=2", "training.eval_every=null", "evaluation.examples=4", "evaluation.test_examples=4"),
    *("generation.max_new_tokens=2", "batching.workers=0", "training.precision=fp32"),
]
OF_PAIRS = [
    *("data.train=60", "data.validation=8", "data.test=8", "tokenizer.vocab_size=300", "batching.tokens=512"),
    *("model.d_model=16", "model.d_ff=16", "model.n_layers=1"),
]
OF_TEXT = [
    *("data.packages=[json]", "data.validation=0.3", "data.test=0.3", "tokenizer.vocab_size=300", "model.d_model=16"),
    *("model.n_layers=1", "measure.factors=[1,2]", "measure.tokens=256", "batching.tokens=128"),
]
ABLATIONS = [name for name in sorted(packaged()) if tree(name).get(ABLATE)]


def test_there_is_one_for_each_table() -> None:
    tables = ("attention", "heads", "norms", "parts", "positions", "table3")
    assert set(ABLATIONS) == {f"ablate-{name}" for name in tables}


def of_files(folder: Path) -> list[str]:
    """Settings for an ablation of parallel text."""
    for language, word in (("en", "line"), ("de", "Zeile")):
        (folder / language).write_text("".join(f"{word} {i} , {i * 7 % 100}\n" for i in range(80)), encoding="utf-8")
    files = [f"data.source={folder / 'en'}", f"data.target={folder / 'de'}"]
    small = [setting for setting in OF_PAIRS if not setting.startswith(("data.", "model."))]
    return [*files, *small, "model.d_ff=16"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_each_shipped_ablation_runs(name: str, tmp_path: Path) -> None:
    settings = {"ablate-positions": OF_TEXT, "ablate-table3": of_files(tmp_path)}.get(name, OF_PAIRS)
    ablation = Ablation.load(name, [*settings, *SHORT], seeds=1)
    done = run_ablation(ablation, tmp_path / "out", device="cpu")
    assert done.report is not None and len(done.summary.rows) == len(ablation.variants)
    assert all(row.finished == (0,) and row.metrics["loss"].mean > 0 for row in done.summary.rows)
    if ablation.measure is not None:
        lengths = {row.label: [x for x, _ in row.curve] for row in done.summary.rows}
        assert lengths["alibi"] == [64, 128] and lengths["learned"] == [64]


def test_latent_attention_caches_as_many_numbers_as_multi_query() -> None:
    ablation = Ablation.load("ablate-attention")
    spec = ablation.variant("MQA").spec().decoder.blocks[0].attention
    latent = ablation.variant("MLA").spec().decoder.blocks[0].attention
    assert latent.numbers_per_token == 2 * spec.n_kv_heads * 16
