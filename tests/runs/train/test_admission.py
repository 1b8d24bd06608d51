from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from qkv.data.batching.settings import Batching
from qkv.nn.cost.hardware import cores
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.admission import admit, check_machine, first_examples
from qkv.training.settings import Training


@pytest.mark.parametrize(
    "setting",
    [
        "training.optimizer.lr=0.01",
        "training.optimizer.weight_decay=0.2",
        "training.schedule={kind: constant}",
        "training.clip_norm=0.5",
        "training.wandb={project: other}",
        "evaluation.samples=3",
        "batching.workers=1",
    ],
)
def test_what_a_resumed_run_may_change(trained: Path, setting: str) -> None:
    recipe = Recipe.load(trained, [setting])
    assert admit(recipe, trained, resume=True, overwrite=False).diff(Recipe.load(trained)) != {}


def test_why_a_split_has_no_examples_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"tokens": ["a", "b"], "ner_tags": ["O", "O"]}\n' * 3)
    every = [f"data.{name}={path}" for name in ("path", "validation_path", "test_path")]
    with pytest.raises(
        ValueError, match=r"has no examples: 3 without a text 'text', but with lists .* data\.word=tokens"
    ):
        first_examples(Recipe.load("tag", ["data.kind=jsonl", *every]))


def test_a_run_from_before_its_preset_had_a_size_continues(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    text = (folder / "recipe.yaml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() not in ("placement: pre", "placement: post")]
    assert len(lines) == len(text.splitlines()) - 1
    (folder / "recipe.yaml").write_text("\n".join(lines), encoding="utf-8")
    admit(Recipe.load(folder), folder, resume=True, overwrite=False)


@pytest.mark.parametrize("setting", ["training.optimizer.kind=sgd", "training.accumulate=2", "seed=9"])
def test_what_it_may_not_is_told_with_what_it_may(trained: Path, setting: str) -> None:
    with pytest.raises(
        ValueError, match=r"can't be resumed with another recipe: .* replace .* with --overwrite"
    ) as error:
        admit(Recipe.load(trained, [setting]), trained, resume=True, overwrite=False)
    said = str(error.value).replace(str(trained), "RUN")
    assert setting.partition("=")[0] in said and len(said.split()) < 45


def test_more_workers_than_a_machine_can_use_are_refused() -> None:
    most = 4 * cores()
    cpu = torch.device("cpu")
    check_machine(Training(), Batching(workers=most), cpu)
    with pytest.raises(ValueError, match=rf"workers is 500, and this machine has \d+ cores; give at most {most}"):
        check_machine(Training(), Batching(workers=500), cpu)


def test_a_changed_learning_rate_trains_on_and_is_kept(trained: Path, tmp_path: Path) -> None:
    from qkv.runs.train.train import train
    from qkv.training.logging.metrics_file import read_metrics

    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    settings = ["training.optimizer.lr=0.0625", "training.schedule={kind: constant, warmup: 0}", "training.max_steps=6"]
    train(Recipe.load(folder, settings), folder, resume=True, device="cpu")
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if line["type"] == "train"]
    assert lines[-1]["step"] == 6 and lines[-1]["lr"] == 0.0625
    assert Recipe.load(folder).training.optimizer.lr == 0.0625
