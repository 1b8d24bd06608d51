"""The directory of a study: whether it is free, and the study that it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core import yamls
from ...directories import layout


def saved_study(out: Path, settings: str, kind: str) -> dict[str, Any] | None:
    """Return the settings of the study in `out`, from its file `settings`, or None if `out` is missing or empty.

    kind: of the study, with its article, such as `an ablation`. Raises ValueError if `out` holds something else.
    """
    if not (out / settings).is_file():
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"{out} holds something that is not {kind}; choose another directory with --out")
        return None
    return yamls.load(layout.read_text(out / settings), str(out / settings))


def needs_resume(out: Path, kind: str) -> ValueError:
    """Return the error for a directory that already holds a study."""
    return ValueError(
        f"{out} holds {kind}; continue it with --resume, replace it with --overwrite, or choose another directory with --out"
    )
