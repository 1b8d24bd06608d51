"""`check(part)`: run the contracts that qkv's own parts meet on a part defined anywhere."""

from __future__ import annotations

from .check import check
from .report import Check, Report

__all__ = ["Check", "Report", "check"]
