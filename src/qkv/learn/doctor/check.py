"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class DoctorCheck:
    """One line of `qkv doctor`.

    status: "ok"; "note", if something is slow or an optional part is missing; "problem", if something is broken.
    remedy: what to do about a note or a problem; "" if nothing can be done or nothing has to be.
    """

    section: str
    name: str
    value: str
    status: Status = "ok"
    remedy: str = ""


def gigabytes(size: float) -> str:
    """Format bytes as GiB, smaller sizes as MiB."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"
