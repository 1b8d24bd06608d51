"""Write a run's directory, in the Hub's format or qkv's own, with its model card."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ....core import several
from ....io.directories.layout import MAX_SHARD_SIZE
from ....io.directories.save import Format, save
from ..classify import longest_classified
from ..loaded import LoadedModel
from .model_card import model_card


def write(
    run: LoadedModel,
    path: Path | str,
    to: Format | None = None,
    card: Callable[[Path], str] | None = None,
    *,
    max_shard_size: int | str = MAX_SHARD_SIZE,
    with_weights: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write a run as `qkv.io.directories.save.save` does. `card` gives the text of the model card of "hub"; by default
    `model_card` under the directory's name."""
    target = several.path(path)
    return save(
        run.model,
        target,
        to,
        tokenizer=run.tokenizer,
        generation=run.generation,
        task=run.task,
        recipe=run.recipe,
        labels=getattr(run.trained_on, "classes", None) or getattr(run.trained_on, "tags", None) or (),
        longest=longest_classified(run),
        origin=run.origin,
        source=run.path,
        max_shard_size=max_shard_size,
        allow_pickle=run.allow_pickle,
        with_weights=with_weights,
        overwrite=overwrite,
        card=card or partial(model_card, run, name=target.absolute().name),
    )
