"""A space to tune, and the study of a tuning as Optuna reads it."""

from __future__ import annotations

from pathlib import Path

import optuna

from qkv.lab.tune.storage import NAME

SPACE = ["training.optimizer.lr=1e-4..1e-2,log", "n_heads=1,2"]


def load(path: Path) -> optuna.Study:
    return optuna.load_study(study_name=NAME, storage=f"sqlite:///{path / 'study.db'}")
