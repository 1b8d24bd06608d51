"""`Ablation.load`: grids, single changes, removed parts, defaults of a recipe, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from qkv.lab.ablate.ablation import Ablation, as_budget

POSITIONS = "decoder.position=rotary,alibi"
RATES = "training.optimizer.lr=1e-3,3e-3"


def _labels(ablation: Ablation) -> list[str]:
    return [variant.label for variant in ablation.variants.values()]


def test_a_grid_has_every_combination() -> None:
    ablation = Ablation.load("localise", vary=[POSITIONS, RATES], seeds=2)
    assert _labels(ablation) == [f"position={p}, lr={r}" for p in ("rotary", "alibi") for r in ("1e-3", "3e-3")]
    recipe = ablation.variant("position-alibi-lr-3e-3", seed=1)
    assert recipe.training.optimizer.lr == 3e-3 and recipe.seed == 1
    assert recipe.spec().decoder.position.kind == "alibi" and recipe.spec().encoder.position.kind != "alibi"
    assert len(ablation.runs) == 8 and ablation.runs[3] == ("position-alibi-lr-3e-3", 0)


def test_random_variants_are_always_the_same() -> None:
    first, second = (Ablation.load("localise", vary=[POSITIONS, RATES], sample=2) for _ in range(2))
    assert len(first.variants) == 2 and first == second


def test_one_at_a_time_keeps_the_recipe_as_it_is() -> None:
    ablation = Ablation.load("localise", vary=[POSITIONS, RATES], alone=True)
    assert _labels(ablation) == ["baseline", "position=rotary", "position=alibi", "lr=1e-3", "lr=3e-3"]
    assert ablation.baseline == "baseline"


def test_the_recipe_says_what_to_vary(text_recipe: Path) -> None:
    tree = yaml.safe_load(text_recipe.read_text())
    tree["ablate"] = {
        "variants": {"wide": {"model.d_ff": 128}, "narrow": {"model.d_ff": 32}},
        "vary": {"training.optimizer.lr": [0.001, 0.003]},
        "seeds": 2,
    }
    text_recipe.write_text(yaml.safe_dump(tree, sort_keys=False))
    ablation = Ablation.load(text_recipe)
    assert _labels(ablation) == ["wide, lr=0.001", "wide, lr=0.003", "narrow, lr=0.001", "narrow, lr=0.003"]
    assert len(ablation.seeds) == 2 and "ablate" not in ablation.recipe
    assert _labels(Ablation.load(text_recipe, parts=["norm"])) == ["baseline", "without norm"]


def test_it_is_saved_as_it_is() -> None:
    ablation = Ablation.load("localise", vary=[POSITIONS])
    assert Ablation.from_dict(yaml.safe_load(ablation.to_yaml())) == ablation


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        (["decoder.positio=rotary,alibi"], "has no 'positio'; did you mean 'position'"),
        (["trainng.max_steps=1,2"], "no 'trainng'; did you mean 'training'"),
        (["model.position=rotar,none"], "there is no position 'rotar'; did you mean 'rotary'"),
        (["training.optimizer.lr=1e-3"], "is the only variant, so there is nothing to compare"),
        (["training.optimizer.lr=1e-3,0.001"], "are the same recipe; leave one of them out"),
        (["training.optimizer.lr=1e-3,1e-3"], "has the value 1e-3 twice"),
        (["training.optimizer.lr"], "is not an axis; write --vary KEY=VALUE,VALUE"),
        (["seed=1,2"], "give --seeds N"),
        ([RATES, RATES], "is given twice"),
    ],
)
def test_variants_that_make_no_comparison(vary: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ablation.load("localise", vary=vary)


def test_parts_that_cannot_be_removed() -> None:
    with pytest.raises(ValueError, match="knows no 'norms'; did you mean 'norm'"):
        Ablation.load("localise", parts=["norms"])
    with pytest.raises(ValueError, match="--drop heads changes nothing"):
        Ablation.load("localise", ["model.n_heads=1"], parts=["heads"])


def test_options_that_contradict() -> None:
    with pytest.raises(ValueError, match="--random 9 is not less than the 4 variants"):
        Ablation.load("localise", vary=[POSITIONS, RATES], sample=9)
    with pytest.raises(ValueError, match="give one of them"):
        Ablation.load("localise", vary=[POSITIONS, RATES], sample=2, alone=True)
    with pytest.raises(ValueError, match="--budget is steps, tokens, flops or time, not 'epochs'"):
        as_budget("epochs")
