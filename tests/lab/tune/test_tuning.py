"""What a tuning is made of: a recipe, its space and its settings."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from qkv.lab.tune.tuning import Tuning
from qkv.runs.recipes.recipe import Recipe, tree


def test_a_recipe_declares_a_space(pairs: list[str], tmp_path: Path) -> None:
    declared = {"space": {"training.optimizer.lr": "1e-4..1e-2, log", "n_heads": [1, 2]}, "trials": 3, "pruner": "none"}
    (tmp_path / "my.yaml").write_text(yaml.safe_dump({**tree("localise"), "tune": declared}, sort_keys=False))
    tuning = Tuning.load(tmp_path / "my.yaml", pairs)
    assert tuning.trials == 3 and tuning.pruner == "none" and [one.key for one in tuning.space][1] == "model.n_heads"
    assert Recipe.load(tmp_path / "my.yaml").name == "localise"  # `qkv train` reads it too


@pytest.mark.parametrize(
    ("space", "settings", "message"),
    [
        ([], [], "declares no space to search; give --space"),
        (["decoder.positio=rotary,none"], [], "did you mean 'position'"),
        (["position=rotari,none"], [], "there is no position 'rotari'"),
        (["rates=1..2"], [], "there is no 'rates'"),
        (["training.optimizer.lr=0.1,0.10"], [], "changes nothing"),
        (["n_heads=1,2", "n_heads=1,4"], [], "given twice"),
        (["n_heads=1,2"], ["training.eval_every=null"], "give training.eval_every=N"),
    ],
)
def test_mistakes_are_one_sentence(space: list[str], settings: list[str], message: str, pairs: list[str]) -> None:
    with pytest.raises(ValueError, match=message):
        Tuning.load("localise", [*pairs, *settings], space=space)
