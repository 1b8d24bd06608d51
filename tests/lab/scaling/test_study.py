"""Studies: the key `scaling` of a recipe, sizes that keep the recipe's proportions, and mistakes in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_study import small_study, written_study

import qkv
from qkv.core import yamls
from qkv.lab.scaling.study import LadderSize, ScalingStudy
from qkv.runs.recipes.packaged import packaged
from qkv.runs.recipes.recipe import Recipe, tree


def test_sizes_keep_the_proportions_of_the_recipe() -> None:
    study = ScalingStudy.load("stdlib", budgets=(1e12,))  # 256 x 4, 4 heads, d_ff 688
    assert study.sizes() == [
        LadderSize(104, 2),
        LadderSize(128, 2),
        LadderSize(160, 3),
        LadderSize(200, 3),
        LadderSize(256, 4),
    ]
    assert study.scaled(LadderSize(256, 4)) == {"d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 688}
    assert study.scaled(LadderSize(128, 2)) == {"d_model": 128, "n_layers": 2, "n_heads": 2, "d_ff": 344}
    assert study.scaled(LadderSize(200, 3))["n_heads"] == 2  # 3 don't divide 200


def test_options_replace_the_recipes_options(tmp_path: Path) -> None:
    study = small_study(tmp_path, sizes=("16x2", "8x1"), hold_out="none")
    assert study.sizes() == [LadderSize(8, 1), LadderSize(16, 2)] and study.scaling.hold_out == "none"
    assert study.scaling.budgets == (8e7, 1.6e8) and study.scaling.exponent == 1
    assert "scaling" not in study.recipe


def test_a_study_is_read_back(tmp_path: Path) -> None:
    study = small_study(tmp_path)
    (tmp_path / "again.yaml").write_text(study.to_yaml())
    assert ScalingStudy.load(tmp_path / "again.yaml") == study


def test_a_recipe_with_a_ladder_trains_its_own_model() -> None:
    assert Recipe.load("scaling").model.sizes["d_model"] == 96
    assert yamls.load(packaged()["scaling"], name="scaling")["scaling"] == tree("scaling")["scaling"]
    assert len(ScalingStudy.load("scaling").scaling.budgets) * len(ScalingStudy.load("scaling").sizes()) == 20


@pytest.mark.parametrize(
    ("ladder", "message"),
    [
        ({"budgets": (1e12, -1.0)}, "budgets are positive numbers of FLOPs"),
        ({"budgets": ()}, "budgets"),
        ({"sizes": ("64",)}, "such as 64x2, not '64'"),
        ({"sizes": ("0x2",)}, "such as 64x2, not '0x2'"),
        ({"rate": "depth^-1"}, "rate is constant, or a power of the width"),
        ({"hold_out": "all"}, "hold_out"),
    ],
)
def test_wrong_ladders_are_refused(tmp_path: Path, ladder: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScalingStudy.load(written_study(tmp_path), **ladder)


def test_recipes_that_cannot_be_scaled_are_refused(tmp_path: Path) -> None:
    text = written_study(tmp_path).read_text()
    (tmp_path / "wrong.yaml").write_text(text[: text.index("scaling:")] + "scaling: 1e12\n")
    with pytest.raises(ValueError, match=r"the key scaling of .* is a mapping with budgets and sizes"):
        ScalingStudy.load(tmp_path / "wrong.yaml")
    with pytest.raises(ValueError, match="stdlib has no budgets; give them as --budgets"):
        ScalingStudy.load("stdlib")
    with pytest.raises(ValueError, match="extrapolate is a comparison of variants"):
        ScalingStudy.load("extrapolate", budgets=(1e12,))
    spec = qkv.preset("gpt2", d_model=8, n_layers=1, n_heads=2, vocab_size=9, max_positions=8)
    qkv.build(spec).save(tmp_path / "trained")
    with pytest.raises(ValueError, match="models from scratch"):
        ScalingStudy.load("lm", [f"model={tmp_path / 'trained'}"], budgets=(1e12,)).own_sizes()
    with pytest.raises(ValueError, match="can't be divided among heads of even width"):
        ScalingStudy.load("stdlib", budgets=(1e12,)).scaled(LadderSize(33, 1))
