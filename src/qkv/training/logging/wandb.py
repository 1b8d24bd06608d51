"""Log to Weights & Biases beside `metrics.jsonl`."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ...core.atomic import write_file
from ...core.spec import Spec

RUN_ID = "wandb-run-id"


class WandB(Spec):
    """Weights & Biases. What is None is left to its own settings: environment variables, `wandb login`, its defaults.

    mode: "offline" writes into the run's folder, from where `wandb sync` sends it.
    """

    project: str = "qkv"
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    mode: Literal["online", "offline"] | None = None


def read_wandb(value: object) -> object:
    """true stands for the default settings, false for none."""
    return {True: WandB(), False: None}[value] if isinstance(value, bool) else value


class WandBoard:
    """A run of Weights & Biases. Its id is kept in the run's folder, so a resumed run continues in it.

    Steps are a separate value there, not W&B's counter, which would refuse the steps that a resumed run repeats.
    """

    def __init__(self, spec: WandB, folder: Path, config: Mapping[str, Any], after: int = 0) -> None:
        wandb = importlib.import_module("wandb")
        folder.mkdir(parents=True, exist_ok=True)
        known = folder / RUN_ID
        id = known.read_text().strip() if after and known.exists() else secrets.token_hex(4)
        fields = {name: getattr(spec, name) for name in ("project", "entity", "name", "group", "mode")}
        try:
            self._run = wandb.init(
                id=id,
                resume="allow",
                dir=str(folder),
                config=dict(config),
                allow_val_change=True,
                tags=spec.tags,
                **fields,
            )
        except wandb.errors.Error as error:
            raise ValueError(
                f"wandb could not start a run: {error}; call `wandb login`, or set training.wandb.mode to offline"
            ) from None
        self._run.define_metric("*", step_metric="step")
        write_file(known, f"{id}\n".encode())

    def write(self, type: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({"step": step, **{f"{type}/{name}": value for name, value in values.items()}})

    def close(self) -> None:
        self._run.finish()
