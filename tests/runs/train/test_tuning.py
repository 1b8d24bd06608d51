"""Going on with a trained model: the learning rate is not that of one from nothing."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from run_tiny import LANGUAGE_MODEL, write_text

from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train
from qkv.training.optimizers import AdamW, Lion, Muon, Optimizer


def rate(*settings: str) -> float:
    return Recipe.load("classify", settings).resolve(100).training.optimizer.lr


def test_a_trained_model_is_trained_on_at_a_rate_for_its_width(trained_lm: Path) -> None:
    """Not at the recipe's 1e-3; the model is 16 wide."""
    assert rate(f"model={trained_lm}") == pytest.approx(5e-5 * 768 / 16)
    assert rate(f"model={trained_lm}", "adapter={kind: lora}") == pytest.approx(5e-4 * 768 / 16)
    assert rate(f"model={trained_lm}", "training.optimizer.kind=lion") == pytest.approx(1e-5 * 768 / 16, rel=0.05)
    assert rate("model={directory: " + str(trained_lm) + "}") == rate(f"model={trained_lm}")


def test_a_rate_that_is_given_stays(trained_lm: Path) -> None:
    assert rate(f"model={trained_lm}", "training.optimizer.lr=0.02") == 0.02
    assert rate("training.optimizer={kind: adamw, lr: 0.03}", f"model={trained_lm}") == 0.03
    assert rate(f"model={trained_lm}", "training.optimizer.freeze=[encoder.*]") == 1e-3
    assert rate() == 1e-3


def test_a_recipe_of_ones_own_says_its_rate_or_gets_the_default(trained_lm: Path, tmp_path: Path) -> None:
    own = Recipe.load("classify", [f"model={trained_lm}"])
    path = tmp_path / "own.yaml"
    path.write_text(own.to_yaml(), encoding="utf-8")
    assert Recipe.load(path).resolve(1).training.optimizer.lr == 1e-3  # written down, so it is meant
    path.write_text(own.to_yaml().replace("    lr: 0.001\n", ""), encoding="utf-8")
    assert Recipe.load(path).resolve(1).training.optimizer.lr == rate(f"model={trained_lm}")


def test_the_rate_is_told_and_kept_and_a_resumed_run_has_it(trained_lm: Path, tmp_path: Path) -> None:
    size = [text for text in LANGUAGE_MODEL if not text.startswith(("model.", "tokenizer."))]
    settings = [*size, f"data.path={write_text(tmp_path)}", "data.documents=line", f"model={trained_lm}"]
    out = io.StringIO()
    train(Recipe.load("lm", settings), tmp_path / "run", device="cpu", console=Console(file=out, width=300))
    assert (
        f"Fine-tuning {trained_lm} with a learning rate of 0.0024, adamw's default for a trained model"
        in out.getvalue()
    )
    assert Recipe.load(tmp_path / "run").training.optimizer.lr == pytest.approx(0.0024)
    more = Recipe.load("lm", [*settings, "training.max_steps=4"])
    assert train(more, tmp_path / "run", device="cpu", resume=True).outcome.state.step == 4


@pytest.mark.parametrize("kind", sorted(Optimizer.kinds))
def test_every_optimizer_has_a_rate_for_a_trained_model_below_that_for_one_from_nothing(kind: str) -> None:
    optimizer = Optimizer.from_dict({"kind": kind})
    assert 0 < optimizer.tuning(768, adapter=False).lr <= optimizer.lr


def test_wider_models_get_smaller_rates() -> None:
    assert AdamW().tuning(768, False).lr == 5e-5 and AdamW().tuning(4096, False).lr == pytest.approx(9.4e-6)
    assert Lion().tuning(768, False).lr == 1e-5 and Muon().tuning(768, True).lr == 2e-3
