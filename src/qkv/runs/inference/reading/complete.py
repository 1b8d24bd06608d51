"""Whether a directory holds a finished run."""

from __future__ import annotations

from pathlib import Path

from ....io.directories.layout import CONFIG, TOKENIZER, WEIGHTS, RunState
from ....io.directories.locate import not_there
from ....io.directories.lock import owner_of
from ....io.directories.run_config import expects_tokenizer


def check_complete(folder: Path) -> None:
    """Raise ValueError, with what to do, if a run directory is not finished, or is none."""
    if not folder.exists():
        raise not_there(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file, and no GGUF file; a run is a directory")
    required = (CONFIG, TOKENIZER, WEIGHTS) if expects_tokenizer(folder) else (CONFIG, WEIGHTS)
    missing = [name for name in required if not (folder / name).is_file()]
    if not missing:
        return
    owner = owner_of(folder)
    if owner is not None:
        raise ValueError(f"the run in {folder} is being trained by {owner} and has no model yet; wait for it")
    if RunState.of(folder) is RunState.STARTED:
        from ...recipes.recipe import argument_of

        raise ValueError(
            f"the run in {folder} is not finished (it has no {missing[0]}); resume it by "
            f"`qkv train {argument_of(folder)} --resume`"
        )
    inside = next(folder.glob(f"*/{WEIGHTS}"), None)
    advice = f"name one inside it, such as {inside.parent}" if inside else "name one that `qkv train` wrote"
    raise ValueError(f"{folder} is not a run directory, because it has no {missing[0]}; {advice}")
