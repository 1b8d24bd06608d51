"""What docs/training.md shows is true: its settings are settings, its kinds are all there are, its Python runs."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from qkv.training.optimizers import Optimizer
from qkv.training.optimizers.schedules import Schedule
from qkv.training.settings import Training

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", blocks("yaml"))
def test_its_settings_are_read(block):
    content = yaml.safe_load(block)
    assert set(content) == {"training"}
    Training.from_dict(content["training"])


@pytest.mark.parametrize("role", [Optimizer, Schedule])
def test_its_tables_name_every_kind(role):
    ours = {kind for kind, cls in role.kinds.items() if cls.__module__.startswith("qkv.")}
    assert ours <= set(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE))


def test_its_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    training, block = blocks("python")
    names: dict = {}
    exec(compile(training, "training.md", "exec"), names)
    assert names["run"].recipe.training.max_steps == 10 and "\nfinal" not in (printed := capsys.readouterr().out)
    assert "\ntrain " in printed and "\neval " in printed and (tmp_path / "runs/cats/report.html").is_file()
    exec(compile(block, "training.md", "exec"), names)
    assert isinstance(names["optimizer"], torch.optim.Optimizer)
    assert not names["model"].decoder.embedding.weight.requires_grad
